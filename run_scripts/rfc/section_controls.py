"""Rank the sections of rfc_sections without a model: by words that they share with the question, and by their place.

    python run_scripts/rfc/section_controls.py DATA SPLIT OUTPUT_FOLDER

The rankings are NAME.json, in the form of poolingformer-predict. bm25 compares the question with a section's text, and
title with its heading; place has the most frequent distances from question to answer in train; all is a softmax
regression on the three, fitted to train.
"""

import argparse
import json
import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fairseq_poolingformer.tasks.section_retrieval.examples import SectionSplit
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from fairseq_poolingformer.text.whole_file import write_lines

K1, B = 1.2, 0.75  # of BM25
FARTHEST = 30  # sections; distances beyond count as this
NAMES = ("bm25", "title", "place")


def words(text: str) -> list[str]:
    """Lower-case words and numbers without a plural's s."""
    return [word.removesuffix("s") for word in re.findall(r"\w+", text.lower())]


def bm25(question: list[str], texts: list[list[str]]) -> np.ndarray:
    """The score of each text for the words of a question; how rare a word is, the texts themselves say."""
    counts = [Counter(text) for text in texts]
    mean = sum(map(len, texts)) / len(texts) or 1
    scores = np.zeros(len(texts))
    for word in set(question):
        found = sum(word in count for count in counts)
        rarity = math.log(1 + (len(texts) - found + 0.5) / (found + 0.5))
        for place, count in enumerate(counts):
            number = count[word]
            scores[place] += rarity * number * (K1 + 1) / (number + K1 * (1 - B + B * len(texts[place]) / mean))
    return scores


def distances(split: SectionSplit) -> Counter[int]:
    """How often answers are so many sections after their questions."""
    pairs = zip(split.own.values, split.answer.values, strict=True)
    return Counter(int(np.clip(answer - own, -FARTHEST, FARTHEST)) for own, answer in pairs)


class Features:
    """BM25 of texts and titles, and the log frequency of the distance, for each section of an example."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tokenizer = folder, load_tokenizer(folder)
        self.frequency = distances(SectionSplit.open(folder, "train"))

    def of(self, number: int, split: SectionSplit, shown: dict) -> np.ndarray:
        """(K, 3); minus infinity in the question's own section."""
        question = words(shown["question"])
        pieces = np.split(split.section[number], np.cumsum(split.size[number])[:-1])
        texts = [words(self.tokenizer.decode(piece)) for piece in pieces]
        titles = [words(heading) for heading in shown["sections"]]
        places = np.clip(np.arange(len(texts)) - shown["own"], -FARTHEST, FARTHEST)
        frequency = np.log([self.frequency[int(place)] + 1 for place in places])
        features = np.stack([bm25(question, texts), bm25(question, titles), frequency], 1)
        features[shown["own"]] = -np.inf
        return features

    def split(self, name: str, most: int | None = None) -> tuple[list[dict], list[np.ndarray]]:
        """What is shown of each example, and its features."""
        split = SectionSplit.open(self.folder, name)
        shown = [json.loads(line) for line in SectionSplit.lines(self.folder, name, "sections")]
        chosen = np.random.default_rng(0).permutation(len(shown))[:most] if most else range(len(shown))
        return [shown[n] for n in chosen], [self.of(int(n), split, shown[n]) for n in chosen]


def fit(features: list[np.ndarray], answers: list[int]) -> Tensor:
    """The weights of a softmax regression over each example's sections."""
    weights = torch.zeros(len(NAMES), dtype=torch.double, requires_grad=True)
    rows = [torch.from_numpy(np.where(np.isinf(row), 0, row)) for row in features]
    masks = [torch.from_numpy(np.isinf(row[:, 0])) for row in features]
    optimizer = torch.optim.LBFGS([weights], max_iter=50, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        logits = ((row @ weights).masked_fill(mask, -torch.inf) for row, mask in zip(rows, masks, strict=True))
        total = -sum(row.log_softmax(0)[answer] for row, answer in zip(logits, answers, strict=True)) / len(rows)
        total.backward()
        return total

    optimizer.step(loss)
    return weights.detach()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("split")
    parser.add_argument("output", type=Path)
    parser.add_argument("--fit", type=int, default=500, metavar="N", help="training examples to fit (default: 500)")
    args = parser.parse_args()
    reader = Features(args.data)
    shown, features = reader.split("train", args.fit)
    weights = fit(features, [one["answer"] for one in shown]).numpy()
    print("weights:", ", ".join(f"{name} {weight:.2f}" for name, weight in zip(NAMES, weights, strict=True)))
    shown, features = reader.split(args.split)
    args.output.mkdir(parents=True, exist_ok=True)
    for name, vector in {**dict(zip(NAMES, np.eye(len(NAMES)), strict=True)), "all": weights}.items():
        ranked = {}
        for one, row in zip(shown, features, strict=True):
            scores = np.where(np.isinf(row), 0, row) @ vector
            order = np.argsort(-scores, kind="stable").tolist()
            ranked[one["id"]] = [section for section in order if section != one["own"]]
        write_lines(args.output / f"{name}.json", [json.dumps({"sections": ranked})])
    choices = np.array([len(one["sections"]) - 1 for one in shown])
    print(f"{len(shown)} questions; a random choice is right in {np.mean(100 / choices):.1f} %")


if __name__ == "__main__":
    main()
