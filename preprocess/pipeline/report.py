"""Report of a corpus's command: progress, lengths, notes, unknown tokens, documents that several splits share."""

import contextlib
import itertools
import logging
import os
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from fairseq_poolingformer.command import aligned
from fairseq_poolingformer.text.data_folder import DataFolder
from fairseq_poolingformer.text.dictionary import SPECIAL_SYMBOLS, UNK, read_counts
from fairseq_poolingformer.text.sequences import Sequences, read_sizes
from fairseq_poolingformer.text.tokenizers import load_tokenizer

from .parts import Part

logger = logging.getLogger("preprocess")

_HEADS = {"source": "input", "target": "output", "": "text"}
_BLOCK = 2**22  # tokens counted at a time
EVERY_SECONDS = 30  # of a pass that has no terminal, a line
_SHOWN = 3  # symbols or ids named in a line

Parts = Iterable[tuple[Part, np.ndarray, np.ndarray]]  # each with (n,) which examples are taken, (n,) their digests


@dataclass(frozen=True)
class Made:
    """A data folder that a table describes."""

    folder: DataFolder
    name: str  # of the corpus
    splits: Sequence[str]
    lengths: Sequence[int]  # numbers of tokens; tables say how many inputs are longer
    rejects: Mapping[str, int]  # number of rejected records of each split


Table = Callable[[Made], str]  # lines of text, columns aligned


def length_table(made: Made) -> str:
    """Count each split's examples; median and 90th percentile of its texts in tokens, without ``<s>`` and ``</s>``."""
    ids = made.folder.layout.ids
    sizes = {split: [read_sizes(made.folder.array(split, array)) - 1 for array in ids] for split in made.splits}
    if len(sizes) > 1:
        sizes["all"] = [np.concatenate(columns) for columns in zip(*sizes.values(), strict=True)]
    head = [made.name, "examples"]
    for array in ids:
        head += [f"{_HEADS[array.rpartition('.')[2]]} median", "90th"]
    rows = [[*head, *(f"input > {length}" for length in made.lengths), "rejected"]]
    for split, lengths in sizes.items():
        row = [split, f"{len(lengths[0])}"]
        for side in lengths:
            row += [f"{value:.0f}" for value in np.percentile(side, [50, 90])]
        row += [_share(lengths[0] + 2 > maximum) for maximum in made.lengths]
        rows.append([*row, str(made.rejects.get(split, sum(made.rejects.values())))])
    return aligned(rows)


def _share(is_so: np.ndarray) -> str:
    """How many of (n,) examples, and their share."""
    return f"{np.count_nonzero(is_so)} ({100 * np.count_nonzero(is_so) / len(is_so):.1f} %)"


def task_table(made: Made) -> str:
    """Report examples and lengths in tokens of each split, and the notes of its examples, where the layout has them."""
    folder, arrays = made.folder, made.folder.layout.ids
    head = [made.name, "examples", *(f"{array} median" for array in arrays), "all median", "95th"]
    rows, lines = [[*head, *(f"> {length}" for length in made.lengths), "rejected"]], []
    for split in made.splits:
        sizes = [read_sizes(folder.array(split, array)) for array in arrays]
        whole = np.sum(sizes, axis=0)
        numbers = [*(np.median(column) for column in sizes), *np.percentile(whole, [50, 95])]
        row = [split, str(len(whole)), *(f"{number:.0f}" for number in numbers)]
        rows.append([*row, *(_share(whole > length) for length in made.lengths), str(made.rejects[split])])
        if "notes" in folder.layout.texts:
            lines += count_notes(split, folder.text(split, "notes"))
    return "\n".join([aligned(rows), *lines])


def with_lines(table: Table, lines: Sequence[str]) -> Table:
    """Return a report that goes on with these lines."""
    return lambda made: "\n".join([table(made), *lines])


def count_notes(split: str, path: Path) -> list[str]:
    """Return one line for each kind of note; ``{split}.notes.txt`` has those of each example, separated by ``; ``."""
    with open(path, encoding="utf-8") as lines:
        counts = Counter(note for line in lines if line != "\n" for note in line.rstrip("\n").split("; "))
    return [f"{split}: {count} × {note}" for note, count in counts.most_common()]


def answer_table(made: Made, max_question: int | None = None, max_answer: int | None = None) -> str:
    """Report what :func:`task_table` does, and lengths of questions and answers."""
    lines = [task_table(made)]
    for split in made.splits:
        sizes = made.folder.sequences(split, "question").sizes
        line = f"{split}: questions have up to {sizes.max(initial=0)} tokens"
        if max_question is not None:
            longer = np.count_nonzero(sizes > max_question)
            line += f"; {longer} have more than {max_question}, to which --max-question-length cuts them"
        lines.append(line)
        if max_answer is not None:
            lines += _answers(made.folder, split, max_answer)
    return "\n".join(lines)


def _answers(folder: DataFolder, split: str, limit: int) -> Iterator[str]:
    answer = folder.sequences(split, "answer")
    first, end = np.asarray(answer.values, np.int64).reshape(-1, 2).T
    if len(first):
        shortest = np.full(len(answer), np.iinfo(np.int64).max)
        np.minimum.at(shortest, np.repeat(np.arange(len(answer)), answer.sizes // 2), end - first)
        shortest = shortest[answer.sizes > 0]
        yield (
            f"{split}: the shortest answers have {np.median(shortest):.0f} tokens (median), up to {shortest.max()}; "
            f"{np.count_nonzero(shortest > limit)} have more than {limit}, which prediction never gives"
        )


def unseen_tokens(folder: DataFolder, splits: Iterable[str]) -> list[tuple[str, str]]:
    """Lines, with the option that helps, on splits with tokens unseen by models of this dictionary."""
    if not folder.layout.dictionaries or not folder.tokenizer_path.is_dir():
        return []
    counts = np.array(list(read_counts(folder.dictionary()).values()), np.int64)
    is_unseen = np.concatenate([np.zeros(len(SPECIAL_SYMBOLS), bool), (counts == 0) & (counts.max(initial=0) > 0)])
    is_unseen[UNK] = True
    return [line for split in splits for line in _unseen(folder, split, is_unseen)]


def _unseen(folder: DataFolder, split: str, is_unseen: np.ndarray) -> Iterator[tuple[str, str]]:
    counts = sum(count_symbols(folder.sequences(split, name), len(is_unseen)) for name in folder.layout.ids)
    unseen = np.where(is_unseen, counts, 0)
    if unseen.any():
        texts = load_tokenizer(folder.path).symbol_texts()
        common = [index for index in np.argsort(-unseen, kind="stable")[:_SHOWN].tolist() if unseen[index]]
        names = ("<unk>" if index == UNK else repr(texts[index].decode("utf-8", "replace")) for index in common)
        shown = ", ".join(f"{name} {unseen[index]:,}" for name, index in zip(names, common, strict=True))
        total = counts.sum()
        share = 100 * unseen.sum() / total
        is_white = any(texts[index] in (b"\n", b"\t") for index in common if index != UNK)
        yield (
            f"{split}: {unseen.sum():,} of {total:,} tokens ({share:.2f} %) are unknown to the dictionary, which "
            f"has count 0 for them: {shown}",
            "give --white-space blank" if is_white else "",
        )


def count_symbols(sequences: Sequences, size: int) -> np.ndarray:
    """(size,) int64, how often each symbol of a dictionary occurs."""
    values = sequences.values
    blocks = (values[first : first + _BLOCK] for first in range(0, len(values), _BLOCK))
    return sum((np.bincount(block, minlength=size) for block in blocks), np.zeros(size, np.int64))


def shared_documents(splits: Mapping[str, Parts]) -> list[str]:
    """Return a line for each two splits with the same documents: how many, and the ids of some."""
    lines = []
    digests = {split: _digests(parts) for split, parts in splits.items()}
    for first, second in itertools.combinations(digests, 2):
        places = np.flatnonzero(np.isin(digests[second], digests[first]))
        if not len(places):
            continue
        others = [int(np.flatnonzero(digests[first] == digests[second][place])[0]) for place in places[:_SHOWN]]
        ids = zip(_ids(splits[second], places[:_SHOWN].tolist()), _ids(splits[first], others), strict=True)
        examples = ", ".join(f"{name} ({first}: {other})" for name, other in ids)
        count = len(digests[second])
        lines.append(f"{second}: {len(places)} of {count} documents are in {first}, too, such as {examples}")
    return lines


def _digests(parts: Parts) -> np.ndarray:
    return np.concatenate([np.empty(0, np.uint64), *(digests[take] for _, take, digests in parts)])


def contradictions(folder: DataFolder, labels: Sequence[str], splits: Mapping[str, Parts]) -> list[str]:
    """Return a line if equal documents, in one split or in several, have different labels."""
    digests = np.concatenate([_digests(parts) for parts in splits.values()])
    numbers = np.full(len(digests), -1)
    sequences = [folder.sequences(split, "label") for split in splits]
    numbers[np.concatenate([label.sizes for label in sequences]) > 0] = np.concatenate([x.values for x in sequences])
    _, group = np.unique(digests, return_inverse=True)
    least, most = np.full(len(digests), len(labels)), np.full(len(digests), -1)
    np.minimum.at(least, group, np.where(numbers < 0, len(labels), numbers))
    np.maximum.at(most, group, numbers)
    places = np.flatnonzero((numbers >= 0) & (least < most)[group])
    if not len(places):
        return []
    same = places[group[places] == group[places[0]]]
    pair = same[[0, int(np.flatnonzero(numbers[same] != numbers[same[0]])[0])]]
    whole = [part for parts in splits.values() for part in parts]
    named = (f"{name} ({labels[numbers[place]]})" for name, place in zip(_ids(whole, pair.tolist()), pair, strict=True))
    return [f"{len(places)} documents have another one's text and another label, first {' and '.join(named)}"]


def labels_alike(labels: Iterable[str]) -> list[str]:
    """Return a line for labels that differ in case, blanks and the composition of characters (NFC) alone."""
    groups: dict[str, list[str]] = {}
    for label in labels:
        groups.setdefault("".join(unicodedata.normalize("NFC", label.casefold()).split()), []).append(repr(label))
    return [f"labels that may be the same: {', '.join(group)}" for group in groups.values() if len(group) > 1]


def shared_files(inputs: object) -> list[str]:
    """Return a line for each two splits that are made of the same file."""
    if not isinstance(inputs, dict):
        return []
    of_split = {
        split: {file["sha256"]: file["file"] for file in files if isinstance(file, dict) and "sha256" in file}
        for split, files in inputs.items()
        if isinstance(files, list)
    }
    return [
        f"{first} and {second} are made of the same file: {of_split[second][sha256]}"
        for first, second in itertools.combinations(of_split, 2)
        for sha256 in of_split[second]
        if sha256 in of_split[first]
    ]


def _ids(parts: Parts, places: list[int]) -> list[str]:
    """The ids of examples, given their places among those that are taken."""
    ids: dict[int, str] = {}
    before = 0
    for part, take, _ in parts:
        rows = np.flatnonzero(take)
        if inside := [place for place in places if before <= place < before + len(rows)]:
            texts = part.load()["texts"]["id"]
            ids.update({place: texts[rows[place - before]] for place in inside})
        before += len(rows)
    return [ids[place] for place in places]


class _Lines(tqdm):
    """A bar whose states become lines of a log."""

    monitor_interval = 0  # no thread: processes are forked meanwhile

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        if self.n:
            logger.info("%s", str(self))


@contextlib.contextmanager
def progress(name: str, total: int | None) -> Iterator[Callable[[int], object]]:
    """Give a function to call with the number of bytes that have just been done."""
    with contextlib.ExitStack() as stack:
        options = {"total": total or None, "unit": "B", "unit_scale": True, "desc": name}
        if sys.stderr.isatty():
            yield stack.enter_context(tqdm(**options)).update
            return
        nowhere = stack.enter_context(open(os.devnull, "w"))
        left = "; {percentage:.0f} %, about {remaining} left" * bool(total)
        form = "{desc}: {n_fmt}{unit} in {elapsed}, {rate_fmt}" + left
        lines = _Lines(**options, file=nowhere, mininterval=EVERY_SECONDS, miniters=1, bar_format=form)
        yield stack.enter_context(lines).update
