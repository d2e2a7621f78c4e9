"""Prints the bodies of articles in arXiv's and PubMed's JSON lines as plain text, to train language models on.

    python run_scripts/article_bodies.py train.txt.gz > bodies.txt
    python run_scripts/article_bodies.py --limit 32 val.txt

Each section is a line with its name and a line with its sentences. A blank line ends a document.
"""

import argparse
import gzip
import itertools
import json
from pathlib import Path


def body(line: bytes) -> str:
    """The text of an article without blank lines; every line ends with a newline."""
    article = json.loads(line)
    texts = []
    for name, sentences in zip(article["section_names"], article["sections"], strict=True):
        texts += [name, " ".join(sentences)]
    return "".join(f"{' '.join(text.split())}\n" for text in texts if text.strip())


def main() -> None:
    """Run the command: print the bodies of all files in order."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", metavar="FILE", help="JSON lines, plain or .gz")
    parser.add_argument("--limit", type=int, metavar="N", help="the first N articles of each file (default: all)")
    args = parser.parse_args()
    for path in map(Path, args.files):
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as articles:
            for line in itertools.islice(articles, args.limit):
                print(body(line))


if __name__ == "__main__":
    main()
