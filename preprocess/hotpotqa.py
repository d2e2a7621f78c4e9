"""Make a data folder from HotpotQA (Yang et al. 2018) with distractors, as it is released.

The input is files such as hotpot_train_v1.1.json and hotpot_dev_distractor_v1.json. The second stage of Longformer's
model reads a data folder of the paragraphs that the first stage keeps: the same input with --paragraph-scores.
"""

import argparse
import functools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairseq_poolingformer.options import finite
from fairseq_poolingformer.tasks.hotpotqa.data import PARAGRAPH_SCORES, AnswerType, Fact, HotpotqaSplit, facts_of
from fairseq_poolingformer.tasks.shared.answers import find_answers, hotpotqa_words
from fairseq_poolingformer.tasks.shared.examples import MAX_ANSWER_LENGTH, MAX_QUESTION_LENGTH
from fairseq_poolingformer.text import json_values
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.text.json_values import BadLine
from fairseq_poolingformer.text.surrogates import replace_lone_surrogates
from fairseq_poolingformer.text.tokenizer_base import Tokenizer, byte_offsets

from .pipeline import command, task_corpus
from .pipeline.encode import Encoded, Tokens, one_line
from .pipeline.json_stream import read_elements
from .pipeline.records import Example, Reject, describe_file
from .pipeline.report import answer_table
from .pipeline.run import Corpus

NO_PARAGRAPH = "supporting fact whose title no paragraph has"
NO_SENTENCE = "supporting fact whose number no sentence has"
DROPPED = "relevant paragraph that the first stage dropped"
NO_PLACE = "answer that is not in its paragraphs"
LEAST_KEPT = 2  # evidence comes from two paragraphs

Span = tuple[int, int]


@dataclass(frozen=True)
class Paragraph:
    """A title and sentences, each with its number in the input, and whether they are to be found."""

    title: str
    sentences: tuple[str, ...]
    supporting: frozenset[int] = frozenset()
    is_relevant: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        """The title, and the sentences."""
        return (clean(self.title), *self.sentences)


@dataclass(frozen=True)
class HotpotqaExample(Example):
    """``texts`` are the question, and of each paragraph its title and its sentences."""

    paragraphs: tuple[Paragraph, ...]  # those that are kept
    answer_type: AnswerType | None  # None where the answer is not public
    # spans in characters of the places of the answer, with the number of their text, ascending
    places: tuple[tuple[int, Span], ...]
    notes: tuple[str, ...]  # kinds of oddities


@dataclass(frozen=True)
class Selection:
    """Which paragraphs the second stage reads: the best by the scores of the first one."""

    files: tuple[tuple[Path, str], ...] = ()
    most: int = 5
    threshold: float = -3.0

    def kept(self, name: str, titles: Sequence[str]) -> list[int]:
        """The numbers of a question's paragraphs that are kept, ascending."""
        if not self.files:
            return list(range(len(titles)))
        scores = read_scores(self.files).get(name)
        if scores is None:
            raise BadLine("no scores of the first stage: --paragraph-scores lacks this question")
        # a title and its score, null where the first stage did not read the paragraph
        pairs = [pair for pair in scores if isinstance(pair, list)] if isinstance(scores, list) else []
        pairs = [pair for pair in pairs if len(pair) == 2 and isinstance(pair[1], int | float | None)]
        if [title for title, _ in pairs] != list(titles):
            raise BadLine("scores of other paragraphs: --paragraph-scores has other titles for this question")
        odds = [-math.inf if score is None else score for _, score in pairs]
        ordered = sorted(range(len(titles)), key=lambda number: -odds[number])
        best = [n for rank, n in enumerate(ordered) if rank < LEAST_KEPT or odds[n] > self.threshold]
        return sorted(best[: self.most])


@functools.lru_cache(maxsize=1)
def read_scores(files: tuple[tuple[Path, str], ...]) -> dict[str, list[list]]:
    """Read the titles and scores of the paragraphs of every question, once in a process."""
    by_question: dict[str, list[list]] = {}
    for path, _ in files:
        scores = read_json_file(path).get(PARAGRAPH_SCORES)
        if not isinstance(scores, dict):
            raise ValueError(f"{path}: no {PARAGRAPH_SCORES!r} in it; give predictions of --task hotpotqa")
        by_question |= scores
    return by_question


@task_corpus.from_object
def parse(fields: dict, annotated: bool, selection: Selection = Selection()) -> HotpotqaExample:
    """Make an example of an element of the array."""
    name = task_corpus.id_of(fields, "_id")
    question = replace_lone_surrogates(task_corpus.question_of(fields, "question"))
    everything = [_paragraph(value, number) for number, value in enumerate(json_values.list_of(fields, "context"))]
    if not everything:
        raise BadLine("no paragraphs: context")
    notes: list[str] = []
    if annotated:
        everything = _mark_supporting(everything, facts_of(fields, "supporting_facts"), notes)
    selected = [everything[number] for number in selection.kept(name, [paragraph.title for paragraph in everything])]
    relevant = sum(paragraph.is_relevant for paragraph in everything)
    notes += [DROPPED] * (relevant - sum(paragraph.is_relevant for paragraph in selected))
    answer_type, places = None, ()
    if annotated:
        answer = replace_lone_surrogates(json_values.text_of(fields, "answer")).strip()
        answer_type = {"yes": AnswerType.YES, "no": AnswerType.NO}.get(answer.lower(), AnswerType.SPAN)
        if answer_type == AnswerType.SPAN:
            places = tuple(find_places(answer, selected))
            notes += [] if places else [NO_PLACE]
    texts = [question, *(text for paragraph in selected for text in paragraph.texts)]
    return HotpotqaExample(name, tuple(texts), tuple(selected), answer_type, places, tuple(notes))


def _paragraph(value: object, number: int) -> Paragraph:
    is_pair = isinstance(value, list) and len(value) == 2
    if not is_pair or not isinstance(value[0], str) or not isinstance(value[1], list):
        raise BadLine(f"malformed: context[{number}] must be a title and a list of sentences")
    if not all(isinstance(sentence, str) for sentence in value[1]):
        raise BadLine(f"malformed: context[{number}] has a sentence that is not a string")
    return Paragraph(value[0], tuple(clean(sentence) for sentence in value[1]))


def clean(text: str) -> str:
    return replace_lone_surrogates(text).strip()


def _mark_supporting(paragraphs: Sequence[Paragraph], facts: Iterable[Fact], notes: list[str]) -> list[Paragraph]:
    """Mark the paragraphs and sentences that are to be found; of several with a title, the first one counts."""
    supporting: dict[int, set[int]] = {}
    titles = [paragraph.title for paragraph in paragraphs]
    for title, sentence in dict.fromkeys(facts):
        if title not in titles:
            notes.append(NO_PARAGRAPH)
            continue
        numbers = supporting.setdefault(titles.index(title), set())
        if 0 <= sentence < len(paragraphs[titles.index(title)].sentences):
            numbers.add(sentence)
        else:
            notes.append(NO_SENTENCE)
    return [
        Paragraph(paragraph.title, paragraph.sentences, frozenset(supporting.get(number, ())), number in supporting)
        for number, paragraph in enumerate(paragraphs)
    ]


def find_places(answer: str, paragraphs: Sequence[Paragraph]) -> list[tuple[int, Span]]:
    """Find the answer, as written or as the official script compares it: in facts, else titles, else elsewhere."""
    groups: list[list[tuple[int, str]]] = [[], [], []]
    number = 0
    for paragraph in paragraphs:
        for sentence, text in enumerate(paragraph.texts, -1):
            number += 1
            if paragraph.is_relevant:
                groups[0 if sentence in paragraph.supporting else 1 if sentence < 0 else 2].append((number, text))
    literal = re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)")
    words = hotpotqa_words(answer)
    for group in groups if answer else ():
        matches = [(number, match.span()) for number, text in group for match in literal.finditer(text)]
        matches = matches or [
            (number, (start, end))
            for number, text in group
            for start, end in find_answers(text, [answer])
            if hotpotqa_words(text[start:end]) == words
        ]
        if matches:
            return matches
    return []


def encode(tokenizer: Tokenizer, example: HotpotqaExample) -> Encoded | Reject:
    """Make the arrays of :class:`~fairseq_poolingformer.tasks.hotpotqa.data.HotpotqaSplit`."""
    question = tokenizer.encode(" " + example.texts[0].strip())
    tokens = [Tokens(*tokenizer.encode_with_offsets(" " + text if text else "")) for text in example.texts[1:]]
    sizes = [len(one.ids) for one in tokens]
    if not len(question) or not sum(sizes):
        return Reject("nothing to encode: the tokenizer leaves no token of the question or the paragraphs")
    begins = np.concatenate([[0], np.cumsum(sizes)])
    spans = [
        _token_span(tokens[number - 1], example.texts[number], span) + begins[number - 1]
        for number, span in example.places
    ]
    texts = iter(sizes)
    paragraphs, sentences = [], []
    for paragraph in example.paragraphs:
        paragraphs.append((next(texts), len(paragraph.sentences), paragraph.is_relevant))
        sentences += [(next(texts), number in paragraph.supporting) for number in range(len(paragraph.sentences))]
    arrays: Mapping[str, Sequence] = {
        "paragraph": paragraphs,
        "sentence": sentences,
        "answer": np.unique(np.array(spans, np.int64).reshape(-1, 2), axis=0),
        "answer_type": [] if example.answer_type is None else [example.answer_type],
    }
    ids = {"question": question, "document": np.concatenate([one.ids for one in tokens])}
    titles = json.dumps([paragraph.title for paragraph in example.paragraphs])
    return Encoded(
        ids | {name: np.array(rows, np.int64).ravel() for name, rows in arrays.items()},
        {"id": one_line(example.id), "titles": titles, "notes": "; ".join(example.notes)},
    )


def _token_span(tokens: Tokens, text: str, span: Span) -> np.ndarray:
    """The first token of a piece of a text, and the one after its last; a space was put before the text."""
    start, end = byte_offsets(text)[np.array(span)] + 1
    return np.concatenate(tokens.of_span(np.array([start]), np.array([end])))


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = task_corpus.make_parser("hotpotqa", __doc__, "HotpotQA's JSON, plain, .gz or .bz2")
    second = parser.add_argument_group("second stage")
    text = "predictions of the first stage for all splits: keep the paragraphs with the largest scores"
    second.add_argument("--paragraph-scores", metavar="FILE", type=Path, nargs="+", default=(), help=text)
    command.add_number(second, "--max-paragraphs", Selection.most, "keep N at most")
    text = "keep those with a score above S, and always the best two"
    command.add_number(second, "--min-score", Selection.threshold, text, "S", finite)
    return parser


def make_corpus(args: argparse.Namespace) -> Corpus:
    """Describe the corpus that the command line names."""
    if args.max_paragraphs < LEAST_KEPT:
        raise ValueError(f"--max-paragraphs {args.max_paragraphs}: must be {LEAST_KEPT} or more")
    missing = next((path for path in args.paragraph_scores if not path.is_file()), None)
    if missing is not None:
        raise ValueError(f"--paragraph-scores {missing}: no such file")
    described = [describe_file(path) for path in args.paragraph_scores]
    files = tuple((path, one["sha256"]) for path, one in zip(args.paragraph_scores, described, strict=True))
    read_scores(files)  # what is wrong with them is said now, and forked workers have them
    selection = Selection(files, args.max_paragraphs, args.min_score)
    return task_corpus.make_corpus(
        args,
        read_elements,
        functools.partial(parse, selection=selection),
        name="hotpotqa",
        layout=HotpotqaSplit.layout,
        encode=encode,
        settings={"max_paragraphs": selection.most, "min_score": selection.threshold} if files else {},
        inputs={"paragraph_scores": described} if files else {},
        table=functools.partial(answer_table, max_question=MAX_QUESTION_LENGTH, max_answer=MAX_ANSWER_LENGTH),
    )


main = command.main_of(__name__, make_parser, make_corpus)
