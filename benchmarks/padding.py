"""Share of padding tokens in the batches of long_summarization, beside fairseq's order and batches at random.

    python benchmarks/padding.py [--examples 50000] [--corpus arxiv] [--positions 4096]

No corpus is needed: lengths are drawn from log-normal distributions with the medians and 90th percentiles of table 3.1
in the thesis, those of summaries independently of those of documents. "again" is the share of the pairs of documents
in one batch that are in one batch in another epoch too, if the batches are composed anew.
"""

from __future__ import annotations

import argparse

import numpy as np
from fairseq.data import Dictionary, LanguagePairDataset, data_utils

from fairseq_poolingformer import patches
from fairseq_poolingformer.training.sized_dataset import length_order

# tokens: median and 90th percentile of documents, of summaries
CORPORA = {"arxiv": ((6151, 14405), (171, 352)), "pubmed": ((2715, 6101), (212, 318))}
NINETIETH = 1.2816  # standard deviations above the mean
BATCHES = ({"max_sentences": 4}, {"max_sentences": 16}, {"max_tokens": 16384}, {"max_tokens": 65536})


def draw(median: int, ninetieth: int, examples: int, limit: int, rng: np.random.Generator) -> np.ndarray:
    """(examples,) lengths, ``<s>`` and ``</s>`` included, cut to the limit."""
    sizes = np.exp(rng.normal(np.log(median), np.log(ninetieth / median) / NINETIETH, examples))
    return np.clip(sizes.astype(np.int64) + 2, 3, limit)


def fairseq_order(source: np.ndarray, target: np.ndarray, seed: int) -> np.ndarray:
    """The order of fairseq's own dataset of pairs."""
    with data_utils.numpy_seed(seed):
        return LanguagePairDataset(source, source, Dictionary(), target, target).ordered_indices()


def orders(source: np.ndarray, target: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Each way to order an epoch."""
    shuffled = np.random.default_rng(seed).permutation(len(source))
    return {
        "long_summarization": length_order(source, target, shuffled),
        "fairseq": fairseq_order(source, target, seed),
        "random": shuffled,
    }


def cut(order: np.ndarray, source: np.ndarray, target: np.ndarray, limits: dict[str, int]) -> list[np.ndarray]:
    """Batches, by fairseq's own function."""
    sizes = np.maximum(source, target)
    batches = data_utils.batch_by_size(order, lambda n: sizes[n], num_tokens_vec=sizes, **limits)
    return [np.asarray(batch) for batch in batches]


def padding(batches: list[np.ndarray], sizes: np.ndarray) -> float:
    """Share of padding among all tokens of the batches."""
    return 1 - sizes.sum() / sum(len(batch) * sizes[batch].max() for batch in batches)


def met_again(first: list[np.ndarray], second: list[np.ndarray]) -> float:
    """Share of the pairs in batches of the first epoch that are in one batch of the second."""
    batch_of = np.empty(sum(map(len, first)), dtype=np.int64)
    for number, batch in enumerate(second):
        batch_of[batch] = number
    counts = [np.unique(batch_of[batch], return_counts=True)[1] for batch in first]
    pairs = sum(len(batch) * (len(batch) - 1) for batch in first)
    return sum(int((count * (count - 1)).sum()) for count in counts) / max(pairs, 1)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--examples", type=int, default=50000, help="of the corpus (default: %(default)s)")
    add("--corpus", choices=CORPORA, default="arxiv")
    add("--positions", type=int, nargs="+", default=[4096, 16384], help="lengths to cut documents to")
    add("--target-positions", type=int, default=256)
    args = parser.parse_args()
    patches.quiet_logging()
    documents, summaries = CORPORA[args.corpus]
    for positions in args.positions:
        rng = np.random.default_rng(0)
        source = draw(*documents, args.examples, positions, rng)
        target = draw(*summaries, args.examples, args.target_positions, rng)
        print(f"\n{args.corpus}, {args.examples} documents cut to {positions}, {source.mean():.0f} tokens in the mean")
        print(f"  {'padding of':<37} {'documents':>10} {'summaries':>9} {'again':>7}")
        epochs = [orders(source, target, seed) for seed in (1, 2)]
        for limits in BATCHES:
            for name in epochs[0]:
                first, second = (cut(epoch[name], source, target, limits) for epoch in epochs)
                label = f"{name}, " + ", ".join(f"{key} {value}" for key, value in limits.items())
                shares = (padding(first, source), padding(first, target), met_again(first, second))
                print(f"  {label:<40} {shares[0]:7.2%}   {shares[1]:7.2%} {shares[2]:7.1%}")


if __name__ == "__main__":
    main()
