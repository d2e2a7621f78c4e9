"""Write TextRank's summaries of documents: the sentences that the library sumy ranks first, in the documents' order.

    pip install sumy numpy
    python run_scripts/rfc/textrank.py DOCUMENTS.txt SUMMARIES.txt [--words 60]

Documents have blank lines between them, and a line feed ends a sentence. A summary has whole sentences up to the number
of words, and is cut there.
"""

import argparse
import re
from pathlib import Path

from sumy.models.dom import ObjectDocumentModel, Paragraph, Sentence
from sumy.nlp.stemmers import Stemmer
from sumy.nlp.tokenizers import Tokenizer
from sumy.summarizers.text_rank import TextRankSummarizer
from sumy.utils import get_stop_words

from fairseq_poolingformer.tasks.summarization.sentences import split_sentences
from fairseq_poolingformer.text.whole_file import write_lines

MOST_SENTENCES = 400  # of a document that are compared: the time grows with their square
LEAST_WORDS = 6  # of a sentence: headings and lines of tables have fewer


class _Words(Tokenizer):
    """sumy's words without its download of sentence rules."""

    def __init__(self) -> None:
        self._language = "english"

    def to_words(self, sentence: str) -> tuple[str, ...]:
        return tuple(re.findall(r"[A-Za-z]+", sentence))


def summarize(document: str, words: int) -> str:
    """The first-ranked sentences of a document, in its order."""
    tokenizer = _Words()
    sentences = [Sentence(text, tokenizer) for text in split_sentences(document)]
    sentences = [sentence for sentence in sentences if len(sentence.words) >= LEAST_WORDS][:MOST_SENTENCES]
    ranker = TextRankSummarizer(Stemmer("english"))
    ranker.stop_words = get_stop_words("english")
    ratings = ranker.rate_sentences(ObjectDocumentModel([Paragraph(sentences)])) if sentences else {}
    chosen, size = set(), 0
    for place in sorted(range(len(sentences)), key=lambda place: -ratings[sentences[place]]):
        if size >= words:
            break
        chosen.add(place)
        size += len(str(sentences[place]).split())
    return " ".join(" ".join(str(sentences[place]) for place in sorted(chosen)).split()[:words])


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("documents", type=Path)
    parser.add_argument("summaries", type=Path)
    parser.add_argument("--words", type=int, default=60, metavar="N", help="of a summary (default: %(default)s)")
    args = parser.parse_args()
    documents = args.documents.read_text(encoding="utf-8").strip().split("\n\n")
    write_lines(args.summaries, (summarize(document, args.words) for document in documents))


if __name__ == "__main__":
    main()
