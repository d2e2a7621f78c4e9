"""Retrieval of long texts by a short embedding model: cut, in chunks, and made long without training.

    python run_scripts/evidence/retrieval.py FOLDER [--model sentence-transformers/all-MiniLM-L6-v2]

Each text of FOLDER (.rst, .md, .txt) gives a query, its section called Abstract, else its first section, and a
document, the other sections without what comes before the first heading (metadata, the title). The metric is the mean
reciprocal rank (MRR) of a query's own document, in %, with 95 % of 2,000 bootstrap draws of the queries.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize
from transformers import AutoModel, AutoTokenizer

from fairseq_poolingformer.huggingface import PoolingformerBertModel
from fairseq_poolingformer.huggingface.short_models import longest_input

HEADING = re.compile(r"^(?:(?=\S)(.+)\n([=\-~#*^\"'`])\2{2,}[ \t]*$|#+ .+$)", re.MULTILINE)
QUERY_WORDS = 15  # the fewest of a query


def divide(text: str) -> tuple[str, str] | None:
    """Return a text's query and document; None for a text that has no two sections, or too short a query."""
    headings = list(HEADING.finditer(text))
    sections = [text[a.start() : b.start()] for a, b in pairwise(headings)] + [text[a.start() :] for a in headings[-1:]]
    names = [(heading[1] or heading[0]).strip("# \t").lower() for heading in headings]
    chosen = names.index("abstract") if "abstract" in names else 0
    if len(sections) < 2:
        return None
    query = HEADING.sub("", sections.pop(chosen), count=1).strip()
    return (query, "".join(sections)) if len(query.split()) >= QUERY_WORDS else None


def reciprocal_ranks(scores: np.ndarray) -> np.ndarray:
    """Return 1 / rank of each query's own document from (queries, documents) scores; ties count against it."""
    return 1 / (scores >= scores.diagonal()[:, None]).sum(1)


def interval(values: np.ndarray) -> str:
    """Return the mean of values in %, and 95 % of the bootstrap draws of it."""
    draws = values[np.random.default_rng(1).integers(len(values), size=(2000, len(values)))].mean(1)
    low, high = np.percentile(100 * draws, [2.5, 97.5])
    return f"{100 * values.mean():6.1f} ({low:.1f} to {high:.1f})"


@torch.no_grad()
def embed(model: torch.nn.Module, pieces: list[list[int]]) -> Tensor:
    """Return the normalized means of the last states of token sequences, (pieces, C)."""
    return torch.cat([normalize(model(torch.tensor([ids]))[0].mean(1), dim=-1) for ids in pieces])


def main() -> None:
    """Print a row for each system."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2", help="a BERT; a name or a folder")
    parser.add_argument("--tokens", type=int, nargs=2, default=[1200, 2600], metavar="N", help="of a document")
    args = parser.parse_args()
    short = AutoModel.from_pretrained(args.model).eval()
    tokenizer = AutoTokenizer.from_pretrained(args.model, model_max_length=10**9)
    limit = longest_input(short)
    half = limit // 2

    def framed(ids: list[int]) -> list[int]:
        return [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]

    queries, documents = [], []
    for path in sorted(path for path in args.folder.rglob("*") if path.suffix in (".rst", ".md", ".txt")):
        if parts := divide(path.read_text(encoding="utf-8", errors="replace")):
            query, document = (tokenizer(part, add_special_tokens=False)["input_ids"] for part in parts)
            if args.tokens[0] <= len(document) + 2 <= args.tokens[1]:
                queries.append(framed(query[: limit - 2]))
                documents.append(document)
    if len(documents) < 2:
        parser.error(f"{args.folder} has {len(documents)} documents of {' to '.join(map(str, args.tokens))} tokens")
    print(f"{len(documents)} documents, median {np.median([len(ids) + 2 for ids in documents]):.0f} tokens")
    asked = embed(short, queries)

    def first_tokens(count: int) -> Tensor:
        return asked @ embed(short, [framed(ids[: count - 2]) for ids in documents]).T

    def chunks(merge: Callable[[Tensor], Tensor]) -> Tensor:
        cut = [[framed(ids[k : k + half - 2]) for k in range(0, len(ids), half - 2)] for ids in documents]
        return torch.stack([merge(asked @ embed(short, pieces).T) for pieces in cut], 1)

    def whole(**settings: str) -> Tensor:
        model = PoolingformerBertModel.from_short(short, max_position_embeddings=max(args.tokens[1], limit), **settings)
        return asked @ embed(model, [framed(ids) for ids in documents]).T

    systems: dict[str, Callable[[], Tensor]] = {
        f"chunks of {half}, the best": lambda: chunks(lambda scores: scores.amax(1)),
        f"chunks of {half}, their mean": lambda: chunks(lambda scores: scores.mean(1)),
        f"first {half} tokens": lambda: first_tokens(half),
        f"first {limit} tokens": lambda: first_tokens(limit),
        "one vector: windows": lambda: whole(pooled_layers="none"),
        "one vector: one softmax": whole,
        "one vector: full attention": lambda: whole(pooled_layers="none", window_size="all"),
    }
    print(f"{'':28}   MRR, % (95 %)         minus the first row    CPU seconds")
    baseline = None
    for name, scored in systems.items():
        began = time.process_time()
        ranks = reciprocal_ranks(scored().numpy())
        baseline = ranks if baseline is None else baseline
        row = f"{name:28}{interval(ranks)}  {interval(ranks - baseline):22}"
        print(row, f"{time.process_time() - began:8.0f}", flush=True)


if __name__ == "__main__":
    main()
