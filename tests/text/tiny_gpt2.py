"""A small vocabulary in the files of GPT-2's, learnt from a few words, for tests without the real one; small models."""

import io
import itertools
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import sentencepiece
from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode

TEXT = (
    "the theory of the long document other another is that attention attends to what it attends to 's 're 12 1212 !!! "
    * 2
)
TEXT += "naïve café naïve café 注意力 注意力 機構 機構 การ การ 😀 😀 \n\n\n\n \t\t\t\t        "


def train_sentencepiece(path: Path, lines: Iterable[str], vocab_size: int, **options: object) -> Path:
    """Train a sentencepiece model; it has fewer pieces where the lines are too few for so many."""
    model = io.BytesIO()
    sizes = {"vocab_size": vocab_size, "hard_vocab_limit": options.get("model_type") == "word", "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, **sizes, **options)
    path.write_bytes(model.getvalue())
    return path


def write_vocabulary(folder: Path, merges: int = 80, madeup: int = 1) -> Path:
    """Writes encoder.json, vocab.bpe and dict.txt; the last lacks one token and is in another order than the first."""
    byte_of = bytes_to_unicode()
    words = [[byte_of[b] for b in word.encode()] for word in TEXT.replace(" ", "\0 ").split("\0")]
    pairs = []
    for _ in range(merges):
        counts = Counter(pair for word in words for pair in itertools.pairwise(word))
        pair = max(counts, key=lambda pair: (counts[pair], pair))
        pairs.append(pair)
        words = [_merge(word, pair) for word in words]
    tokens = [*byte_of.values(), *map("".join, pairs)]
    ids = {token: number for number, token in enumerate([*tokens, "<|endoftext|>"])}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "encoder.json").write_text(json.dumps(ids), encoding="utf-8")
    lines = ["#version: 0.2", *map(" ".join, pairs), ""]
    (folder / "vocab.bpe").write_text("\n".join(lines), encoding="utf-8")
    order = [number for number in reversed(range(len(ids))) if number != ids["z"]]
    lines = [*(f"{number} {1000 + number}" for number in order), *(f"madeupword{k:04} 0" for k in range(madeup)), ""]
    (folder / "dict.txt").write_text("\n".join(lines), encoding="utf-8")
    return folder


def _merge(word: list[str], pair: tuple[str, str]) -> list[str]:
    merged, k = [], 0
    while k < len(word):
        take = 2 if tuple(word[k : k + 2]) == pair else 1
        merged.append("".join(word[k : k + take]))
        k += take
    return merged
