"""HotpotQA's predictions from the logits of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_poolingformer.tasks.hotpotqa.examples import (
    AnswerType,
    HotpotqaLogits,
    HotpotqaSplit,
    MarkLogits,
    supporting_sentences,
)
from fairseq_poolingformer.tasks.hotpotqa.scores import HotpotqaPredictions
from fairseq_poolingformer.tasks.shared.answer_spans import MAX_ANSWER_LENGTH, best_spans
from fairseq_poolingformer.text.data_folder import HOTPOTQA, DataFolder
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from fairseq_poolingformer.text.whole_file import write_lines

PARAGRAPH_SCORES = "paragraph_scores"  # a key beside those of the official format; null: not read


class HotpotqaPredictor:
    """Answers and supporting facts, in the official format, and the scores of paragraphs for the second stage.

    Args:
        folder: the data folder.
        split: e.g. "valid".
        max_answer_length: tokens of an answer at most.
    """

    def __init__(self, folder: Path, split: str, max_answer_length: int = MAX_ANSWER_LENGTH) -> None:
        data = DataFolder(Path(folder), HOTPOTQA)
        self._ids, titles = (
            data.text(split, name).read_text(encoding="utf-8").split("\n")[:-1] for name in ("id", "titles")
        )
        self._titles = [json.loads(line) for line in titles]
        self._split = HotpotqaSplit.open(folder, split)
        self._tokenizer = load_tokenizer(folder)
        self._max_answer_length = max_answer_length
        self._found: dict[int, tuple[str, list[tuple[str, int]], list[tuple[str, float | None]]]] = {}

    def add(self, numbers: list[int], output: HotpotqaLogits, batch: dict[str, Any]) -> None:
        """Take the logits of a batch."""
        spans = best_spans(output.span, self._max_answer_length)
        tokens = batch["net_input"]["src_tokens"]
        for row, number in enumerate(numbers):
            answer_type = AnswerType(int(output.answer_type[row].argmax()))
            answer = answer_type.name.lower()
            if answer_type == AnswerType.SPAN:
                found = tokens[spans.segment[row], spans.first[row] : spans.last[row] + 1]
                answer = self._tokenizer.decode(found.tolist()).strip() if spans.score[row] > -np.inf else ""
            counts = self._split.paragraphs(number)[:, 1]
            paragraph = _of_example(output.paragraph, row, len(counts))
            sentence = np.split(_of_example(output.sentence, row, int(counts.sum())), np.cumsum(counts)[:-1])
            titles = self._titles[number]
            facts = [(titles[place], fact) for place, fact in supporting_sentences(paragraph, sentence)]
            read = zip(titles, paragraph.tolist(), strict=True)
            scores = [(title, round(score, 4) if score > -np.inf else None) for title, score in read]
            self._found[number] = answer, facts, scores

    def write(self, path: Path) -> None:
        """Write the predictions in the order of the data folder."""
        found = {self._ids[number]: self._found[number] for number in sorted(self._found)}
        answers, facts, scores = ({name: value[part] for name, value in found.items()} for part in range(3))
        content = HotpotqaPredictions(answers, facts).to_json() | {PARAGRAPH_SCORES: scores}
        write_lines(path, [json.dumps(content)])  # in ASCII: a lone surrogate in a title has no UTF-8


def _of_example(marks: MarkLogits, example: int, count: int) -> np.ndarray:
    """(count,) the logits of an example's marks, -inf where a mark was not read."""
    values = np.full(count, -np.inf)
    chosen = marks.example == example
    values[marks.number[chosen].numpy()] = marks.logit[chosen].float().numpy()
    return values
