"""Make a data folder from WikiHop or MedHop (QAngaroo, Welbl et al. 2018), as they are released.

The input is an array of objects with ``id``, ``query``, ``candidates``, ``supports`` and, but for ``--test``,
``answer``.
"""

import functools
import json
from dataclasses import dataclass

import numpy as np

from fairseq_poolingformer.tasks.wikihop.data import LONGEST, WikihopSplit
from fairseq_poolingformer.text import json_values
from fairseq_poolingformer.text.json_values import BadLine
from fairseq_poolingformer.text.tokenizer_base import Tokenizer

from .pipeline import command, task_corpus
from .pipeline.encode import Encoded, one_line
from .pipeline.json_stream import read_elements
from .pipeline.records import Example, Reject
from .pipeline.report import answer_table

UNMENTIONED_ANSWER = "answer that no support mentions"
UNMENTIONED = "candidates that no support mentions"
SAME_TOKENS = "candidates that have the same tokens as another one"


@dataclass(frozen=True)
class WikihopExample(Example):
    """``texts`` are the question, the candidates and the supports, in this order."""

    num_candidates: int  # how many texts are candidates
    answer: int | None  # the right one's number, None where it is not known
    notes: tuple[str, ...] = ()


@task_corpus.from_object
def parse(fields: dict, annotated: bool) -> WikihopExample:
    """Make an example of an element of the array; ``annotated`` says whether it must have an answer."""
    name = task_corpus.id_of(fields, "id")
    question = task_corpus.question_of(fields, "query")
    candidates, supports = (_texts(fields, key) for key in ("candidates", "supports"))
    if not candidates:
        raise BadLine("no candidates")
    if 2 * len(candidates) > LONGEST:
        raise BadLine(f"too many candidates: the marks of {len(candidates):,} fill more than {LONGEST:,} tokens")
    if len(set(candidates)) < len(candidates):
        twice = next(text for text in candidates if candidates.count(text) > 1)
        raise BadLine(f"candidate is there twice: {twice!r}")
    answer = None
    if annotated:
        text = json_values.text_of(fields, "answer")
        if text not in candidates:
            raise BadLine(f"answer is no candidate: {text!r}")
        answer = candidates.index(text)
    whole = "\n".join(supports).lower()
    missing = [text for text in candidates if text.lower() not in whole]
    notes = [UNMENTIONED] * bool(missing)
    if answer is not None and candidates[answer] in missing:
        notes.append(UNMENTIONED_ANSWER)
    return WikihopExample(name, (question, *candidates, *supports), len(candidates), answer, tuple(notes))


def _texts(fields: dict, key: str) -> list[str]:
    texts = json_values.list_of(fields, key)
    for number, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip():
            raise BadLine(f"empty or no text: {key}[{number}]")
    return texts


def encode(tokenizer: Tokenizer, example: WikihopExample) -> Encoded | Reject:
    """Make the arrays of :class:`~fairseq_poolingformer.tasks.wikihop.data.WikihopSplit`."""
    question, *rest = (tokenizer.encode(" " + text.strip()) for text in example.texts)
    candidates, supports = rest[: example.num_candidates], rest[example.num_candidates :]
    arrays = {"question": question, "answer": np.array([] if example.answer is None else [example.answer], np.int64)}
    for name, texts in (("candidate", candidates), ("support", supports)):
        arrays[f"{name}s"] = np.concatenate([np.zeros(0, np.int64), *texts])
        arrays[f"{name}_sizes"] = np.array(list(map(len, texts)), np.int64)
    fixed = len(question) + 2 * len(candidates) + 4  # with the marks
    if fixed > LONGEST:
        return Reject(f"too long: the question and the marks of its candidates are {fixed:,} tokens, of {LONGEST:,}")
    kinds = len({candidate.tobytes() for candidate in candidates})
    notes = [*example.notes, *[SAME_TOKENS] * (kinds < len(candidates))]
    names = json.dumps(example.texts[1 : example.num_candidates + 1])
    return Encoded(arrays, {"id": one_line(example.id), "candidates": names, "notes": "; ".join(notes)})


_FIELDS = {"name": "wikihop", "layout": WikihopSplit.layout, "encode": encode, "table": answer_table}
make_parser = functools.partial(task_corpus.make_parser, "wikihop", __doc__, "QAngaroo's JSON, plain, .gz or .bz2")
make_corpus = functools.partial(task_corpus.make_corpus, read=read_elements, parse=parse, **_FIELDS)
main = command.main_of(__name__, make_parser, make_corpus)
