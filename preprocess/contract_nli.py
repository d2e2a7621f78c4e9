"""Make a data folder from ContractNLI (Koreeda and Manning 2021), as it is released: train.json, dev.json, test.json.

Every hypothesis about a contract is an example.
"""

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fairseq_poolingformer.tasks.contract_nli.examples import ContractNliSplit
from fairseq_poolingformer.tasks.contract_nli.scores import annotation_of, annotations_of, hypotheses_of
from fairseq_poolingformer.tasks.shared.examples import MAX_QUESTION_LENGTH
from fairseq_poolingformer.text import json_values
from fairseq_poolingformer.text.dictionary import replace_lone_surrogates
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.text.json_lines import BadLine
from fairseq_poolingformer.text.tokenizer_base import Tokenizer

from . import hotpotqa
from .hotpotqa import HotpotqaExample, Paragraph, clean
from .pipeline import command, task_corpus
from .pipeline.encode import Encoded
from .pipeline.records import InputError, Record, Reject
from .pipeline.report import answer_table


def read(paths: Sequence[Path]) -> Iterator[Record]:
    """Read each contract once for each hypothesis; a record holds both.

    Raises:
        InputError: a file is something else.
    """
    for path in paths:
        release = read_json_file(path)
        try:
            hypotheses, documents = hypotheses_of(release), json_values.list_of(release, "documents")
        except ValueError as error:
            raise InputError(f"{path}: {error}; is this ContractNLI?") from error
        progress = path.stat().st_size // max(len(documents) * len(hypotheses), 1)
        for number, document in enumerate(documents):
            for name, hypothesis in hypotheses.items():
                fields = {"document": document, "hypothesis": hypothesis, "name": name}
                yield Record(f"{path}, document {number}, {name}", 1, json.dumps(fields).encode(), progress)


@task_corpus.from_object
def parse(fields: dict, annotated: bool) -> HotpotqaExample:
    """Make an example of a record of :func:`read`; ``annotated`` says whether its annotation is read."""
    document = json_values.as_object(fields["document"], "a document")
    text, spans = json_values.text_of(document, "text"), json_values.list_of(document, "spans")
    if not text.strip() or not spans:
        raise BadLine("empty document: no text or no spans")
    if not all(_is_span(span, len(text)) for span in spans):
        raise BadLine("malformed: spans must be pairs of places in the text")
    choice, evidence = None, ()
    if annotated:
        annotations = annotations_of(document)
        if fields["name"] not in annotations:
            raise BadLine(f"no annotation: of {fields['name']}")
        found = annotation_of(annotations[fields["name"]], len(spans))
        choice, evidence = found.choice, found.spans
    sentences = tuple(clean(text[start:end]) for start, end in spans)
    paragraph = Paragraph("", sentences, frozenset(evidence), bool(evidence))
    name = json.dumps([str(json_values.example_id_of(document, "id")), fields["name"]])
    question = replace_lone_surrogates(fields["hypothesis"])
    return HotpotqaExample(name, (question, *paragraph.texts), (paragraph,), choice, (), ())


def _is_span(span: object, size: int) -> bool:
    is_pair = isinstance(span, list) and len(span) == 2 and all(type(place) is int for place in span)
    return is_pair and 0 <= span[0] <= span[1] <= size


def encode(tokenizer: Tokenizer, example: HotpotqaExample) -> Encoded | Reject:
    """Make the arrays of :class:`~fairseq_poolingformer.tasks.contract_nli.examples.ContractNliSplit`."""
    found = hotpotqa.encode(tokenizer, example)
    return found if isinstance(found, Reject) else replace(found, texts={"id": found.texts["id"]})


_FIELDS = {"name": "contract_nli", "layout": ContractNliSplit.layout, "encode": encode}
make_parser = functools.partial(task_corpus.make_parser, "contract_nli", __doc__, "ContractNLI's JSON")
make_corpus = functools.partial(
    task_corpus.make_corpus,
    read=read,
    parse=parse,
    table=functools.partial(answer_table, max_question=MAX_QUESTION_LENGTH),
    **_FIELDS,
)
main = functools.partial(command.main, make_parser, make_corpus)
