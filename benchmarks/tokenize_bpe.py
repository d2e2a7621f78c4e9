"""GPT-2 BPE on one core: fairseq's own encoder, Hugging Face tokenizers, and this project's.

    python benchmarks/tokenize_bpe.py --gpt2-bpe FOLDER [--text FILE]

FOLDER holds encoder.json, vocab.bpe and fairseq's dict.txt. FILE is text, one document a line; without it, the sources
of the standard library are the documents. All three must give the same ids, or nothing is timed. The first pass over
the text, where nothing is remembered yet, is told apart from those after it.
"""

import argparse
import importlib.metadata
import os
import platform
import statistics
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

os.environ.update(TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1")  # before the libraries start their threads

from fairseq.data import Dictionary
from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from fairseq_poolingformer.data.tokenizers import GPT2Tokenizer

Encode = Callable[[str], list[int]]


def read_documents(path: Path | None, max_bytes: int) -> list[str]:
    """The first documents, about so many bytes of them."""
    if path is not None:
        with open(path, encoding="utf-8") as file:
            texts = [line.rstrip("\n") for line in file]
    else:
        root = Path(sysconfig.get_path("stdlib"))
        files = [file for file in sorted(root.rglob("*.py")) if "site-packages" not in file.parts]
        texts = [file.read_text(encoding="utf-8", errors="replace") for file in files]
    documents, size = [], 0
    for text in texts:
        if text and size < max_bytes:
            documents.append(text)
            size += len(text.encode())
    return documents


def make_encoders(folder: Path) -> tuple[dict[str, Callable[[], Encode]], Callable[[list[int]], list[int]]]:
    """How to make each encoder anew, and how to turn GPT-2 ids into dictionary indices."""
    encoder_json, vocab_bpe, dict_txt = (str(folder / name) for name in GPT2Tokenizer.files)
    dictionary = Dictionary.load(dict_txt)

    def hugging_face() -> Encode:
        tokenizer = Tokenizer(models.BPE.from_file(encoder_json, vocab_bpe))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        return lambda text: tokenizer.encode(text).ids

    encoders = {
        "fairseq": lambda: get_encoder(encoder_json, vocab_bpe).encode,
        "Hugging Face tokenizers": hugging_face,
        "fairseq_poolingformer": lambda: GPT2Tokenizer.from_files(folder).encode,
    }
    return encoders, lambda ids: [dictionary.index(str(token)) for token in ids]


def check_same_ids(encoders: dict[str, Encode], to_indices: Callable, documents: list[str]) -> int:
    """The number of tokens; exits where an encoder disagrees. Ours gives dictionary indices, the others GPT-2's ids."""
    tokens = 0
    for number, document in enumerate(documents, 1):
        expected = to_indices(encoders["fairseq"](document))
        tokens += len(expected)
        for name, encode in encoders.items():
            ids = list(encode(document))
            if (ids if name == "fairseq_poolingformer" else to_indices(ids)) != expected:
                sys.exit(f"document {number}: {name} gives other ids than fairseq; not timed")
    return tokens


def time_once(encode: Encode, documents: list[str]) -> float:
    """Seconds for one pass."""
    start = time.perf_counter()
    for document in documents:
        encode(document)
    return time.perf_counter() - start


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpt2-bpe", metavar="FOLDER", type=Path, required=True)
    parser.add_argument("--text", metavar="FILE", type=Path)
    parser.add_argument("--max-bytes", type=int, default=8 * 2**20, help="of text (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=5, help="passes after the first (default: %(default)s)")
    args = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    documents = read_documents(args.text, args.max_bytes)
    makers, to_indices = make_encoders(args.gpt2_bpe)
    tokens = check_same_ids({name: make() for name, make in makers.items()}, to_indices, documents)
    size = sum(len(document.encode()) for document in documents)
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("tiktoken", "tokenizers", "regex")]
    print(f"{platform.machine()}, one core, Python {platform.python_version()}, {', '.join(versions)}")
    print(f"{len(documents)} documents, {size / 2**20:.1f} MiB, {tokens} tokens, the same ids from all")

    encoders = {name: make() for name, make in makers.items()}
    passes: dict[str, list[float]] = {name: [] for name in encoders}
    for _ in range(args.repetitions + 1):  # in turn, so that a busy machine slows all alike
        for name, encode in encoders.items():
            passes[name].append(tokens / time_once(encode, documents))
    print(f"{'tokens a second':26}{'first pass':>12}{'median':>12}{'least':>12}{'most':>12}{'ratio':>8}{'first':>8}")
    base_first, base = passes["fairseq"][0], statistics.median(passes["fairseq"][1:])
    for name, (first, *rest) in passes.items():
        median = statistics.median(rest)
        columns = "".join(f"{value:12,.0f}" for value in (first, median, min(rest), max(rest)))
        print(f"{name:26}{columns}{median / base:7.1f}×{first / base_first:7.1f}×")


if __name__ == "__main__":
    main()
