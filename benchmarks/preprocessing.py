"""Preprocessing beside fairseq's own pipeline for BART: documents a CPU second of one process, and equal ids.

    python benchmarks/preprocessing.py test.txt --gpt2-bpe gpt2_bpe --documents 400

Documents are lines of JSON in arXiv's format. fairseq's pipeline encodes lines by its ``gpt2_bpe_utils``, as its
``multiprocessing_bpe_encoder.py`` does, and binarizes them by ``fairseq-preprocess``. A run with one document measures
the start of the processes, which the rate leaves out.
"""

import argparse
import gzip
import itertools
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from fairseq.data.data_utils import load_indexed_dataset

ENCODE = """import sys; from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
encoder = get_encoder(*(f"{sys.argv[1]}/{name}" for name in ("encoder.json", "vocab.bpe")))
for line in sys.stdin: print(*encoder.encode(line.rstrip("\\n")))"""
SIDES = {"source": "article_text", "target": "abstract_text"}


def cpu_seconds(folder: Path, *words: object, **streams: object) -> float:
    """Run a Python process and return its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *map(str, words)], cwd=folder, check=True, **streams)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def encode(records: list[dict[str, str]], bpe: Path, folder: Path) -> dict[str, float]:
    """Make the data folders ``ours`` and ``fairseq`` and return the CPU seconds of each."""
    (folder / "lines").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    words = ["--train", "lines", "--gpt2-bpe", bpe, "--output-folder", "ours", "--workers", 1]
    ours = cpu_seconds(folder, "-m", "fairseq_poolingformer.cli.main", "preprocess", "arxiv_pubmed", *words)
    words = ["--source-lang", "source", "--target-lang", "target", "--trainpref", "train", "--destdir", "fairseq"]
    words += ["--srcdict", bpe / "dict.txt", "--tgtdict", bpe / "dict.txt", "--workers", 1]
    theirs = 0.0
    for side, key in SIDES.items():
        text = "".join(f"{record[key]}\n" for record in records)
        with open(folder / f"train.{side}", "w") as ids, tempfile.TemporaryFile("w+") as lines:
            print(text, end="", file=lines, flush=True)
            lines.seek(0)
            theirs += cpu_seconds(folder, "-c", ENCODE, bpe, stdin=lines, stdout=ids)
    return {"ours": ours, "fairseq": theirs + cpu_seconds(folder, "-m", "fairseq_cli.preprocess", *words)}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", type=Path, help="documents, plain or .gz")
    parser.add_argument("--gpt2-bpe", type=Path, required=True, help="folder with encoder.json, vocab.bpe, dict.txt")
    parser.add_argument("--documents", type=int, default=400, help="number of documents (default: 400)")
    options = parser.parse_args()
    with (gzip.open if options.lines.suffix == ".gz" else open)(options.lines, "rt") as file:
        lines = [json.loads(line) for line in itertools.islice(file, options.documents)]
    records = [{key: " ".join(" ".join(line[key]).split()) for key in SIDES.values()} for line in lines]
    with tempfile.TemporaryDirectory() as small, tempfile.TemporaryDirectory() as large:
        start = encode(records[:1], options.gpt2_bpe.absolute(), Path(small))
        for name, seconds in encode(records, options.gpt2_bpe.absolute(), Path(large)).items():
            rate = (len(records) - 1) / (seconds - start[name])
            print(
                f"{name}: {seconds:.1f} CPU seconds, {start[name]:.1f} of one document, {rate:.0f} documents a second"
            )
        data = [load_indexed_dataset(f"{large}/{name}/train.source-target.source") for name in start]
        print(f"the same ids in {sum(a.equal(b) for a, b in zip(*data, strict=True))} of {len(records)} documents")


if __name__ == "__main__":
    main()
