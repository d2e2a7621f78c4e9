"""What data are for: how examples are encoded, what a model's outputs say of them, official figures, baselines."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import MultiLabelBinarizer
from torch import nn
from transformers import (
    BatchEncoding,
    DataCollatorForSeq2Seq,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
)

from fairseq_poolingformer.cli.finetune.base import Base
from fairseq_poolingformer.cli.finetune.data import Data
from fairseq_poolingformer.huggingface.in_one_call import best_span, of_summaries
from fairseq_poolingformer.preprocess import presets
from fairseq_poolingformer.tasks.classification import data as of_labels
from fairseq_poolingformer.tasks.presets import PRESETS, squad
from fairseq_poolingformer.tasks.presets.metrics import METRICS
from fairseq_poolingformer.tasks.shared.estimates import intervals
from fairseq_poolingformer.tasks.summarization.rouge import lead_baseline, split_sentences
from fairseq_poolingformer.tasks.token_labels import data as of_words
from fairseq_poolingformer.text.labels import AMOUNT, SEVERAL

IGNORED = -100  # a label that has no part in a loss
MOST_WRITTEN = 1024  # tokens of a summary
MOST_STRIDE = 128  # tokens that two segments of a document share
QUESTION_WORDS, ANSWER_TOKENS = 64, 30  # the most that are read of a question, and found as an answer
LINEAR = "TF-IDF, linear"  # a baseline

Figures = dict[str, dict[str, float]]  # name -> mean, low, high


@dataclass
class Task:
    """A task; predictions are a list that has one for each example.

    Each has ``features``: the inputs of examples or of their segments, with labels; ``decode``: the predictions that
    outputs say; ``figures``: the official ones; ``baselines``: predictions without a neural network, by name.

    Attributes:
        batch, lr, epochs: of a training; the rate is for that many examples an update.
        best: the figure on validation that chooses the checkpoint.
        cut: what becomes of the rest of a document that is longer than the model.
    """

    data: Data
    base: Base
    length: int  # tokens of an input
    batch: ClassVar[int] = 16
    lr: ClassVar[float] = 3e-5
    epochs: ClassVar[int] = 10
    best: ClassVar[str] = "loss"
    cut: ClassVar[str] = "is cut off"
    label_names: ClassVar[list[str]] = ["labels"]
    key: ClassVar[str] = "prediction"  # in a file of predictions
    names: list[str] = field(init=False, default_factory=list)  # of the labels, in the model's order

    @property
    def tokenizer(self) -> Any:
        """The model's."""
        return self.base.tokenizer

    def prepare(self, model: nn.Module) -> None:
        """Take from a model, or give it, what this task needs."""
        self.names = list(model.config.id2label.values())

    def collator(self, model: nn.Module) -> Callable[[list[dict]], dict]:
        """What makes a batch of features."""
        return DataCollatorWithPadding(self.tokenizer)

    def smaller(self, logits: Any, labels: Any) -> Any:
        """What of a batch's outputs :meth:`decode` needs."""
        return logits[0] if isinstance(logits, tuple) else logits  # BART's kin return their states, too

    def segments(self, *texts: Any, **options: Any) -> Iterator[tuple[BatchEncoding, int, dict[str, Any]]]:
        """All segments of a document, the number of each, and a model's inputs of it."""
        stride = min(MOST_STRIDE, self.length // 4)
        options |= {"return_overflowing_tokens": True, "return_offsets_mapping": True}
        found = self.tokenizer(*texts, max_length=self.length, stride=stride, **options)
        for row in range(len(found["input_ids"])):
            yield found, row, {name: found[name][row] for name in self.tokenizer.model_input_names if name in found}

    def evaluate(self, split: str, predictions: list) -> Figures:
        """The official figures of a split with their 95% intervals."""
        figures = self.figures(self.data.splits[split], predictions)
        found = intervals(figures)
        return {
            name: {"mean": float(value), **dict(zip(("low", "high"), found.get(name, ()), strict=False))}
            for name, value in figures.items()
            if isinstance(value, float)
        }

    def lines(self, examples: Sequence[Any], predictions: list) -> list[str]:
        """The lines of a file of predictions."""
        return [json.dumps({"id": one.id, self.key: found}) for one, found in zip(examples, predictions, strict=True)]


class Summaries(Task):
    """Texts for texts."""

    batch, lr, epochs = 32, 1e-4, 10

    @cached_property
    def target_length(self) -> int:
        """Tokens of the longest summary that is learned."""
        texts = [one.texts[1] for one in self.data.splits["train"][:1000]]
        longest = max(map(len, self.tokenizer(text_target=texts)["input_ids"]))
        config = self.base.config
        names = ("max_decoder_position_embeddings", "max_position_embeddings")
        most = next((value for name in names if (value := getattr(config, name, None))), MOST_WRITTEN)
        return min(longest + 8, most, MOST_WRITTEN)

    def prepare(self, model: nn.Module) -> None:
        self.prefix, _ = of_summaries(model.config)

    def collator(self, model: nn.Module) -> Callable[[list[dict]], dict]:
        return DataCollatorForSeq2Seq(self.tokenizer, model)

    def features(self, examples: Sequence[Any]) -> list[dict]:
        most = self.target_length
        return [
            {
                **self.tokenizer(
                    self.prefix + one.texts[0], truncation=True, max_length=self.length, return_token_type_ids=False
                ),
                "labels": self.tokenizer(text_target=one.texts[1], truncation=True, max_length=most)["input_ids"],
            }
            for one in examples
        ]

    def decode(self, examples: Sequence[Any], features: list[dict], outputs: Any) -> list[str]:
        tokens = np.where(outputs == IGNORED, self.tokenizer.pad_token_id, outputs)
        return [text.strip() for text in self.tokenizer.batch_decode(tokens, skip_special_tokens=True)]

    def evaluate(self, split: str, predictions: list[str]) -> Figures:
        preset, examples = self.data.found.purpose.preset, self.data.splits[split]
        metric = METRICS[PRESETS[preset].metric if preset else "rouge_stemmed"]
        references = [[one.texts[1]] for one in examples]
        if preset and not self.data.is_divided:
            gold = presets.gold(preset, [self.data.name], split)
            references = [gold[one.id] for one in examples]
        values = metric.values(predictions, references)
        means, found = metric.figures(values), metric.intervals(values)
        return {name: {"mean": means[name], "low": found[name][0], "high": found[name][1]} for name in means}

    def baselines(self, examples: Sequence[Any]) -> dict[str, list]:
        words = max(1, round(statistics.median(len(one.texts[1].split()) for one in self.data.splits["train"])))
        return {f"first {words} words": [lead_baseline(one.texts[0], words=words) for one in examples]}


class Labels(Task):
    """A label, several, or an amount for a text or two."""

    batch, lr, epochs, key = 16, 5e-5, 10, "label"

    @property
    def best(self) -> str:
        """The figure that chooses the checkpoint."""
        return {AMOUNT: "loss", SEVERAL: "f1"}.get(self.data.problem, "accuracy")

    def features(self, examples: Sequence[Any]) -> list[dict]:
        found = []
        for one in examples:
            labels = _names(one.label)
            if self.data.problem == AMOUNT:
                wanted: Any = float(labels[0])
            elif self.data.problem == SEVERAL:
                wanted = [float(name in labels) for name in self.names]
            else:
                wanted = self.names.index(labels[0]) if labels[0] in self.names else IGNORED  # of validation alone
            found.append({**self.tokenizer(*one.texts, truncation=True, max_length=self.length), "labels": wanted})
        return found

    def decode(self, examples: Sequence[Any], features: list[dict], outputs: Any) -> list:
        if self.data.problem == AMOUNT:
            return [float(value) for value in np.reshape(outputs, -1)]
        if self.data.problem == SEVERAL:
            return [[self.names[place] for place in np.flatnonzero(row > 0)] for row in outputs]
        return [self.names[int(place)] for place in np.argmax(outputs, -1)]

    def figures(self, examples: Sequence[Any], predictions: list) -> dict[str, float]:
        is_amount = self.data.problem == AMOUNT
        gold = [float(_names(one.label)[0]) if is_amount else one.label for one in examples]
        return _scored(of_labels, self.lines(examples, gold), self.lines(examples, predictions))

    def baselines(self, examples: Sequence[Any]) -> dict[str, list]:
        train, tfidf = self.data.splits["train"], TfidfVectorizer(sublinear_tf=True)
        texts = tfidf.fit_transform([" ".join(one.texts) for one in train])
        others = tfidf.transform([" ".join(one.texts) for one in examples])
        labels = [_names(one.label) for one in train]
        usual: Any = list(Counter(map(tuple, map(sorted, labels))).most_common(1)[0][0])
        if self.data.problem == AMOUNT:
            amounts = [float(one[0]) for one in labels]
            name, usual = "mean", statistics.fmean(amounts)
            found = Ridge().fit(texts, amounts).predict(others).tolist()
        elif self.data.problem == SEVERAL:
            name, binarizer = "most frequent labels", MultiLabelBinarizer()
            linear = OneVsRestClassifier(LogisticRegression(max_iter=1000)).fit(texts, binarizer.fit_transform(labels))
            found = list(map(list, binarizer.inverse_transform(linear.predict(others))))
        else:
            usual, classes = usual[0], [one[0] for one in labels]
            linear = LogisticRegression(max_iter=1000, C=10) if len(set(classes)) > 1 else DummyClassifier()
            name, found = f"always {usual}", linear.fit(texts, classes).predict(others).tolist()
        return {name: [usual] * len(examples), LINEAR: found}


class Words(Task):
    """A label for each word of a document."""

    batch, lr, epochs, best = 16, 5e-5, 10, "f1"
    cut = "is read in segments"

    def collator(self, model: nn.Module) -> Callable[[list[dict]], dict]:
        return DataCollatorForTokenClassification(self.tokenizer)

    def features(self, examples: Sequence[Any]) -> list[dict]:
        found, numbers = [], {name: place for place, name in enumerate(self.names)}
        for number, one in enumerate(examples):
            for segments, row, inputs in self.segments(list(one.texts), is_split_into_words=True, truncation=True):
                words = segments.word_ids(row)
                places = [word if word != before else None for before, word in pairwise([None, *words])]
                labels = [IGNORED if word is None else numbers.get(one.label[word], IGNORED) for word in places]
                found.append({**inputs, "labels": labels, "places": (number, places)})
        return found

    def smaller(self, logits: Any, labels: Any) -> Any:
        return super().smaller(logits, labels).argmax(-1)

    def decode(self, examples: Sequence[Any], features: list[dict], outputs: Any) -> list[list[str]]:
        usual = self._usual()
        found = [[""] * len(one.texts) for one in examples]
        for feature, row in zip(features, outputs, strict=True):
            number, places = feature["places"]
            for place, label in zip(places, row, strict=False):
                if place is not None:
                    found[number][place] = found[number][place] or self.names[int(label)]
        return [[label or usual for label in labels] for labels in found]  # of words without a token

    def _usual(self) -> str:
        counts = Counter(label for one in self.data.splits["train"] for label in one.label)
        return counts.most_common(1)[0][0]

    def figures(self, examples: Sequence[Any], predictions: list) -> dict[str, float]:
        gold = self.lines(examples, [one.label for one in examples])
        return _scored(of_words, gold, self.lines(examples, predictions))

    def lines(self, examples: Sequence[Any], predictions: list) -> list[str]:
        return [
            json.dumps({"id": one.id, "tokens": one.texts, "labels": labels, "sentences": one.sentences})
            for one, labels in zip(examples, predictions, strict=True)
        ]

    def baselines(self, examples: Sequence[Any]) -> dict[str, list]:
        usual, of_word = self._usual(), {}
        for one in self.data.splits["train"]:
            for word, label in zip(one.texts, one.label, strict=True):
                of_word.setdefault(word, Counter())[label] += 1
        most = {word: counts.most_common(1)[0][0] for word, counts in of_word.items()}
        return {
            f"always {usual}": [[usual] * len(one.texts) for one in examples],
            "each word's most frequent label": [[most.get(word, usual) for word in one.texts] for one in examples],
        }


class Answers(Task):
    """Words of a text that answer a question; a prediction is the text and the probability that there is none."""

    batch, lr, epochs, best = 16, 3e-5, 3, "f1"
    cut = "is read in segments"
    label_names: ClassVar[list[str]] = ["start_positions", "end_positions"]
    threshold = 0.5  # the probability above which there is no answer

    def prepare(self, model: nn.Module) -> None:
        pass

    @property
    def has_unanswerable(self) -> bool:
        """Whether questions may have no answer, as in SQuAD v2."""
        return any(not one.answers for examples in self.data.splits.values() for one in examples)

    def features(self, examples: Sequence[Any]) -> list[dict]:
        found = []
        for number, one in enumerate(examples):
            question = " ".join(one.texts[0].split()[:QUESTION_WORDS])
            for segments, row, inputs in self.segments(question, one.texts[1], truncation="only_second"):
                sides = zip(segments["offset_mapping"][row], segments.sequence_ids(row), strict=True)
                places = [span if side == 1 else None for span, side in sides]
                first, last = _tokens_of(one.answers, places)
                found.append({**inputs, "start_positions": first, "end_positions": last, "places": (number, places)})
        return found

    def smaller(self, logits: Any, labels: Any) -> Any:
        return logits[:2]

    def decode(self, examples: Sequence[Any], features: list[dict], outputs: Any) -> list[tuple[str, float]]:
        best, none = [("", 0.0)] * len(examples), [1.0] * len(examples)
        for feature, start, end in zip(features, *outputs, strict=True):
            number, places = feature["places"]
            logits = (torch.from_numpy(np.asarray(x[: len(places)], np.float32)) for x in (start, end))
            inside = torch.tensor([place is not None for place in places])
            first, last, score, least = best_span(*logits, inside, ANSWER_TOKENS)
            none[number] = min(none[number], least)
            if score > best[number][1]:
                best[number] = examples[number].texts[1][places[first][0] : places[last][1]], score
        return [(text, least / max(score + least, 1e-30)) for (text, score), least in zip(best, none, strict=True)]

    def figures(self, examples: Sequence[Any], predictions: list) -> dict[str, float]:
        gold = {one.id: [one.texts[1][first:end] for first, end in one.answers] for one in examples}
        texts = {one.id: text for one, (text, _) in zip(examples, predictions, strict=True)}
        if not self.has_unanswerable:
            return squad.score_v1(gold, texts)
        chances = {one.id: chance for one, (_, chance) in zip(examples, predictions, strict=True)}
        return squad.score_v2(gold, texts, chances, self.threshold)

    def lines(self, examples: Sequence[Any], predictions: list) -> list[str]:
        most = self.threshold if self.has_unanswerable else 1.0
        pairs = zip(examples, predictions, strict=True)
        return [json.dumps({json.loads(one.id)[0]: "" if none > most else text for one, (text, none) in pairs})]

    def baselines(self, examples: Sequence[Any]) -> dict[str, list]:
        none = {"never an answer": [("", 1.0)] * len(examples)} if self.has_unanswerable else {}
        tfidf = TfidfVectorizer().fit([one.texts[1] for one in self.data.splits["train"]])
        found = []
        for one in examples:
            sentences = split_sentences(one.texts[1])
            likeness = tfidf.transform(sentences) @ tfidf.transform([one.texts[0]]).T
            found.append((sentences[int(likeness.toarray().argmax())], 0.0))
        return {**none, "TF-IDF, nearest sentence": found}


TASKS: dict[str, type[Task]] = {
    "summarization": Summaries,
    "classification": Labels,
    "token-labels": Words,
    "question-answering": Answers,
}


def _tokens_of(answers: Sequence[tuple[int, int]], places: list) -> tuple[int, int]:
    """The first and the last token of the first answer that a segment has; 0 and 0, the first token, without any."""
    for begin, end in answers:
        inside = [n for n, place in enumerate(places) if place and place[0] < end and place[1] > begin]
        if inside and places[inside[0]][0] <= begin and places[inside[-1]][1] >= end:
            return inside[0], inside[-1]
    return 0, 0


def _names(label: str | tuple[str, ...]) -> tuple[str, ...]:
    return (label,) if isinstance(label, str) else label


def _scored(scores: Any, gold: list[str], predicted: list[str]) -> dict[str, float]:
    """The official figures, by files as the scorer reads them."""
    with tempfile.TemporaryDirectory() as folder:
        right, found = Path(folder, "gold.jsonl"), Path(folder, "predictions.jsonl")
        right.write_text("\n".join(gold), encoding="utf-8")
        found.write_text("\n".join(predicted), encoding="utf-8")
        return scores.score([right], found)
