"""Make a data folder from TriviaQA (Joshi et al. 2017), its Wikipedia or its web set, as they are released.

The input is files such as qa/wikipedia-train.json, and the folder evidence/ with the documents that they name. Every
question with one of its documents is an example. All occurrences of all aliases of the answer are right, whatever their
case, punctuation and articles, as the official script compares them.
"""

import argparse
import functools
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairseq_poolingformer.tasks.shared.answers import find_answers
from fairseq_poolingformer.tasks.shared.examples import MAX_ANSWER_LENGTH, MAX_QUESTION_LENGTH
from fairseq_poolingformer.tasks.triviaqa.data import DOMAINS, PAGE_LISTS, TriviaqaSplit, prediction_key, right_answers
from fairseq_poolingformer.text import json_values
from fairseq_poolingformer.text.input_files import opened
from fairseq_poolingformer.text.json_values import BadLine
from fairseq_poolingformer.text.surrogates import replace_lone_surrogates
from fairseq_poolingformer.text.tokenizer_base import Tokenizer, byte_offsets

from .pipeline import command, task_corpus
from .pipeline.encode import Encoded, Tokens
from .pipeline.json_stream import read_elements, text_members
from .pipeline.records import MAX_LINE_BYTES, Example, Record, Reject, Skipped
from .pipeline.report import answer_table
from .pipeline.run import Corpus

NO_ANSWER = "document without the answer"
NOT_EXACT = "answer not on token edges"
NO_DOCUMENT = "question without documents"
TWICE = "document that a question names twice"
FOLDERS = dict(zip(PAGE_LISTS, ("wikipedia", "web"), strict=True))


@dataclass(frozen=True)
class TriviaqaExample(Example):
    """A question and a document; ``answers`` are half-open spans in characters of the document, ascending."""

    answers: tuple[tuple[int, int], ...]
    notes: tuple[str, ...] = ()


def read(paths: Sequence[Path], evidence: Path) -> Iterator[Record]:
    """Read each question once for each of its documents; a malformed one is one record, as it is in the file."""
    for path in paths:
        domain = _domain(path)
        for element in read_elements([path], "Data"):
            yield from _with_documents(element, domain, evidence)


def _domain(path: Path) -> str:
    """Find the domain of a file, which may come after hundreds of megabytes of questions."""
    with opened(path) as content:
        try:
            domains = list(dict.fromkeys(text_members(content, "Domain")))
        except ValueError as error:
            raise ValueError(f"{path}: not JSON ({error})") from error
    if len(domains) != 1 or domains[0] not in DOMAINS:
        named = f"names {' and '.join(map(repr, domains))}" if domains else "names none"
        raise ValueError(f"{path}: 'Domain' must be {' or '.join(DOMAINS)}, and it {named}; is this TriviaQA?")
    return domains[0]


def _with_documents(element: Record, domain: str, evidence: Path) -> Iterator[Record]:
    try:
        question = json.loads(element.data or b"")
        pages = [
            f"{folder}/{json_values.text_of(json_values.as_object(page, name), 'Filename')}"
            for name, folder in FOLDERS.items()
            for page in (json_values.list_of(question, name) if name in question else ())
        ]
    except (ValueError, TypeError, RecursionError):
        pages = []
    if not pages:
        yield element
        return
    base = {key: question[key] for key in ("QuestionId", "Question", "Answer") if key in question}
    for number, page in enumerate(pages):
        fields = {**base, "domain": domain, "page": page, "twice": page in pages[:number], **_document(evidence, page)}
        yield Record(
            f"{element.file}, {page}", element.line, json.dumps(fields).encode(), element.progress if number == 0 else 0
        )


def _document(evidence: Path, page: str) -> dict[str, str]:
    """The text of an evidence file, or why there is none: a question may name no file outside of the evidence."""
    path = evidence / page
    try:
        if not path.resolve().is_relative_to(evidence.resolve()):
            return {"problem": f"evidence file outside of --evidence-folder: {page}"}
        if path.exists() and not path.is_file():
            return {"problem": f"evidence that is not a file: {path}"}
        if path.stat().st_size > MAX_LINE_BYTES:
            return {"problem": f"evidence file of more than {MAX_LINE_BYTES:,} bytes: {path}"}
        return {"document": path.read_bytes().decode("utf-8-sig")}
    except FileNotFoundError:
        return {"problem": f"no evidence file: {path}"}
    except (OSError, ValueError, RuntimeError) as error:  # the last one: links in a circle
        return {"problem": f"unreadable evidence file: {path} ({error})"}


@task_corpus.from_object
def parse(fields: dict, annotated: bool) -> TriviaqaExample | Skipped:
    """Make an example of a record of :func:`read`; ``annotated`` says whether it must have an answer."""
    name = task_corpus.id_of(fields, "QuestionId")
    question = replace_lone_surrogates(task_corpus.question_of(fields, "Question"))
    if "page" not in fields:
        for key in PAGE_LISTS:
            for page in json_values.list_of(fields, key) if key in fields else ():
                json_values.text_of(json_values.as_object(page, key), "Filename")
        return Skipped(NO_DOCUMENT)
    if fields["twice"]:
        return Skipped(TWICE)
    if "problem" in fields:
        raise BadLine(fields["problem"])
    document = replace_lone_surrogates(fields["document"])
    if not document.strip():
        raise BadLine(f"empty document: {fields['page']}")
    answers, notes = (), []
    if annotated:
        texts = right_answers(json_values.as_object(fields.get("Answer"), "'Answer'"))
        answers = tuple(find_answers(document, texts))
        notes += [] if answers else [NO_ANSWER]
    page = fields["page"]
    key = prediction_key(fields["domain"], name, page.partition("/")[2])
    return TriviaqaExample(json.dumps([key, page]), (question, document), answers, tuple(notes))


def encode(tokenizer: Tokenizer, example: TriviaqaExample) -> Encoded | Reject:
    """Make the arrays of :class:`~fairseq_poolingformer.tasks.triviaqa.data.TriviaqaSplit`."""
    question, document = example.texts
    ids = tokenizer.encode(question)
    tokens = Tokens(*tokenizer.encode_with_offsets(document))
    if not len(ids) or not len(tokens.full):
        return Reject("nothing to encode: the tokenizer leaves no token of the question or the document")
    answers = byte_offsets(document)[np.array(example.answers, np.int64).reshape(-1, 2)]
    first, end = tokens.of_span(answers[:, 0], answers[:, 1])
    notes = list(example.notes)
    if (tokens.starts[first] != answers[:, 0]).any() or (tokens.ends[end - 1] != answers[:, 1]).any():
        notes.append(NOT_EXACT)
    spans = np.unique(np.column_stack([first, end]), axis=0)
    arrays = {"question": ids, "document": tokens.ids, "answer": spans.ravel()}
    return Encoded(arrays, {"id": example.id, "notes": "; ".join(notes)})


def describe_evidence(folder: Path) -> dict[str, object]:
    """Identify the evidence by the names and sizes of its files; to read half a million of them takes too long."""
    digest, count = hashlib.sha256(), 0
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = Path(root, name)
            size = path.stat(follow_symlinks=path.exists()).st_size  # a broken link has its own
            digest.update(f"{path.relative_to(folder).as_posix()}\0{size}\0".encode("utf-8", "surrogateescape"))
            count += 1
    if not count:
        raise ValueError(f"--evidence-folder {folder}: no files in it; give the folder with wikipedia/ and web/")
    return {"files": count, "sha256": digest.hexdigest()}


def make_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = task_corpus.make_parser("triviaqa", __doc__, "TriviaQA's JSON, plain, .gz or .bz2")
    text = "the release's folder evidence/, which has wikipedia/ and web/"
    parser.add_argument("--evidence-folder", metavar="DIR", type=Path, required=True, help=text)
    return parser


def make_corpus(args: argparse.Namespace) -> Corpus:
    """Describe the corpus that the command line names."""
    return task_corpus.make_corpus(
        args,
        functools.partial(read, evidence=args.evidence_folder),
        parse,
        name="triviaqa",
        layout=TriviaqaSplit.layout,
        encode=encode,
        inputs={"evidence": describe_evidence(args.evidence_folder)},
        table=functools.partial(answer_table, max_question=MAX_QUESTION_LENGTH, max_answer=MAX_ANSWER_LENGTH),
    )


main = command.main_of(__name__, make_parser, make_corpus)
