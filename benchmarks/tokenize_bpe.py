"""GPT-2 BPE on one core: fairseq's own encoder, Hugging Face tokenizers, tiktoken, and this project's.

    python benchmarks/tokenize_bpe.py --gpt2-bpe FOLDER [--text FILE ...]

FOLDER holds encoder.json, vocab.bpe and fairseq's dict.txt. The FILEs are JSON lines as preprocess.arxiv_pubmed reads
them; without any, the sources of the standard library are the documents. The benchmark times encoders only if all give
the same ids.

fairseq's encoder and Hugging Face's remember words. So each repetition makes new encoders, and each encoder reads one
half of the documents, then the other half, whose text it has not seen, then that half again. The encoders take turns;
times are CPU time of the process. Ratios compare with fairseq's encoder in the same repetition. This project and
fairseq's second row give indices of the dictionary, the others stop at GPT-2's ids.
"""

import argparse
import importlib.metadata
import os
import platform
import statistics
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

os.environ.update(TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1")  # before the libraries start their threads

import tiktoken
from fairseq.data import Dictionary
from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
from fairseq_poolingformer.preprocess.arxiv_pubmed import parse
from fairseq_poolingformer.preprocess.pipeline.records import Example, read_lines
from tiktoken.load import data_gym_to_mergeable_bpe_ranks
from tiktoken_ext.openai_public import r50k_pat_str
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from fairseq_poolingformer.text.table import aligned
from fairseq_poolingformer.text.tokenizers import GPT2Tokenizer

Encode = Callable[[str], Sequence[int]]

BASE, OURS = "fairseq", "fairseq_poolingformer"
WITH_INDICES = ("fairseq and its dictionary", OURS)
PASSES = ("first text", "text not seen", "the same again")


def read_documents(paths: Sequence[Path], max_bytes: int) -> list[str]:
    """Read the first documents, about so many bytes of them."""
    documents, size = [], 0
    for text in _articles(paths) if paths else _sources():
        if size >= max_bytes:
            break
        documents.append(text)
        size += len(text.encode())
    return documents


def _articles(paths: Sequence[Path]) -> Iterator[str]:
    for record in read_lines(paths):
        example = parse(record)
        if isinstance(example, Example):
            yield example.texts[0]


def _sources() -> Iterator[str]:
    root = Path(sysconfig.get_path("stdlib"))
    for file in sorted(root.rglob("*.py")):
        if "site-packages" not in file.parts:
            yield file.read_text(encoding="utf-8", errors="replace")


def make_encoders(folder: Path, dictionary: Dictionary) -> dict[str, Encode]:
    """Make new encoders, which remember no words yet."""
    encoder_json, vocab_bpe = (str(folder / name) for name in GPT2Tokenizer.files[:2])
    fairseq, with_dictionary = (get_encoder(encoder_json, vocab_bpe).encode for _ in range(2))

    def fairseq_indices(text: str) -> list[int]:
        line = " ".join(map(str, with_dictionary(text)))
        return dictionary.encode_line(line, append_eos=False, add_if_not_exist=False).tolist()

    hugging_face = Tokenizer(models.BPE.from_file(encoder_json, vocab_bpe))
    hugging_face.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    hugging_face.decoder = decoders.ByteLevel()
    ranks = data_gym_to_mergeable_bpe_ranks(vocab_bpe, encoder_json)
    special = {"<|endoftext|>": len(ranks)}
    theirs = tiktoken.Encoding("gpt2", pat_str=r50k_pat_str, mergeable_ranks=ranks, special_tokens=special)
    return {
        BASE: fairseq,
        WITH_INDICES[0]: fairseq_indices,
        "Hugging Face tokenizers": lambda text: hugging_face.encode(text).ids,
        "tiktoken": theirs.encode_ordinary,
        OURS: GPT2Tokenizer.from_files(folder).encode,
    }


def check_same_ids(encoders: dict[str, Encode], dictionary: Dictionary, documents: list[str]) -> None:
    """Exit where an encoder disagrees with fairseq's."""
    for number, document in enumerate(documents, 1):
        gpt2_ids = encoders[BASE](document)
        indices = [dictionary.index(str(token)) for token in gpt2_ids]
        for name, encode in encoders.items():
            if list(encode(document)) != (indices if name in WITH_INDICES else gpt2_ids):
                sys.exit(f"document {number}: {name} gives other ids than fairseq; not timed")


def tokens_a_second(encode: Encode, documents: list[str]) -> float:
    """Encode the documents once; return tokens per second of CPU time."""
    start = time.process_time()
    tokens = sum(len(encode(document)) for document in documents)
    return tokens / (time.process_time() - start)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpt2-bpe", metavar="FOLDER", type=Path, required=True)
    parser.add_argument("--text", metavar="FILE", type=Path, nargs="+", default=[])
    parser.add_argument("--max-bytes", type=int, default=8 * 2**20, help="of text (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=5, help="default: %(default)s")
    args = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    documents = read_documents(args.text, args.max_bytes)
    dictionary = Dictionary.load(str(args.gpt2_bpe / GPT2Tokenizer.files[2]))
    check_same_ids(make_encoders(args.gpt2_bpe, dictionary), dictionary, documents)
    size = sum(len(document.encode()) for document in documents)
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("tiktoken", "tokenizers", "regex")]
    print(f"{platform.machine()}, one core, Python {platform.python_version()}, {', '.join(versions)}")
    print(f"{len(documents)} documents, {size / 2**20:.1f} MiB, the same ids from all")

    halves = {PASSES[0]: documents[::2], PASSES[1]: documents[1::2], PASSES[2]: documents[1::2]}
    speeds: dict[tuple[str, str], list[float]] = {}
    for _ in range(args.repetitions):
        encoders = make_encoders(args.gpt2_bpe, dictionary)
        for text, half in halves.items():
            for name, encode in encoders.items():
                speeds.setdefault((name, text), []).append(tokens_a_second(encode, half))
    rows = [["tokens a second, ratio (least to most)", *PASSES]]
    for name in encoders:
        row = [name]
        for text in PASSES:
            ratios = [ours / base for ours, base in zip(speeds[name, text], speeds[BASE, text], strict=True)]
            spread = f"{statistics.median(ratios):.1f}× ({min(ratios):.1f} to {max(ratios):.1f})"
            row.append(f"{statistics.median(speeds[name, text]):,.0f}  {spread}")
        rows.append(row)
    print(aligned(rows))


if __name__ == "__main__":
    main()
