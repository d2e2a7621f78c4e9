"""``poolingformer-preprocess CORPUS``: runs the command of one corpus, or lists the corpora."""

import importlib
import sys
from collections.abc import Sequence

from fairseq_poolingformer.cli.command import output_for_a_while

CORPORA = {
    "arxiv_pubmed": "arXiv, PubMed, BigPatent and any other summarization corpus in JSON lines",
    "wikipedia": "a dump of Wikipedia, or of another wiki, in any language, for language models",
    "plain_text": "text files, a document each or a document each block of lines, for language models",
    "char_lm": "enwik8, text8 or any other text, bytes as symbols, for character language models",
    "facts": "made documents, five facts scattered in real prose, no download",
    "stdlib": "the Python installation itself: sources and their docstrings, no download",
    "natural_questions": "questions about Wikipedia pages: Natural Questions, both formats",
    "tydiqa": "questions about Wikipedia pages in eleven languages: TyDi QA, primary tasks",
    "imdb": "film reviews with a sentiment each: the folder aclImdb",
    "hyperpartisan": "news articles, hyperpartisan or not: the XML pair of the 2019 task",
    "labelled_text": "any documents with a label each, lines of JSON",
    "ontonotes": "documents whose mentions are marked, in the column format of CoNLL-2012: OntoNotes, for coreference",
    "wikihop": "questions about several documents with candidate answers: WikiHop and MedHop",
    "triviaqa": "questions about Wikipedia or web pages: TriviaQA with its evidence files",
    "hotpotqa": "questions about several paragraphs with supporting facts: HotpotQA with distractors",
}


def usage() -> str:
    """The list of corpora."""
    width = max(map(len, CORPORA))
    lines = "\n".join(f"  {name:{width}}  {text}" for name, text in CORPORA.items())
    return (
        "usage: poolingformer-preprocess CORPUS [options]\n\n"
        f"Make a data folder that fairseq trains on. Corpora:\n\n{lines}\n\n"
        "poolingformer-preprocess CORPUS --help lists the options of each.\n"
        "poolingformer-preprocess check FOLDER compares the files of a data folder with their digests."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    name, *options = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in ("-h", "--help"):
        with output_for_a_while():
            print(usage())
        return 0
    if name not in (*CORPORA, "check"):
        print(f"{usage()}\n\nerror: {name}: no such corpus", file=sys.stderr)
        return 2
    return importlib.import_module(f"{__package__}.{name}").main(options)


if __name__ == "__main__":
    sys.exit(main())
