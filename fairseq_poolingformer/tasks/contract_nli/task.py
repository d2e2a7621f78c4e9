"""fairseq's ``--task contract_nli``."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from fairseq.tasks import register_task

from fairseq_poolingformer.tasks.contract_nli.examples import ContractNliSplit
from fairseq_poolingformer.tasks.contract_nli.scores import Choice
from fairseq_poolingformer.tasks.hotpotqa.examples import SENTENCE_COLUMNS
from fairseq_poolingformer.tasks.hotpotqa.head import HotpotqaLogits
from fairseq_poolingformer.tasks.hotpotqa.task import HotpotqaConfig, HotpotqaTask, logits_of
from fairseq_poolingformer.text.whole_file import write_lines


class ContractNliPredictor:
    """Probabilities of choices and of spans, in the form that the published evaluator reads."""

    def __init__(self, folder: Path, split: str) -> None:
        self._ids = list(map(json.loads, ContractNliSplit.lines(folder, split)))
        self._counts = ContractNliSplit.open(folder, split).sentence.sizes // len(SENTENCE_COLUMNS)
        self._found: dict[int, dict[str, Any]] = {}

    def add(self, numbers: list[int], output: HotpotqaLogits, batch: dict[str, Any]) -> None:
        """Take the logits of a batch."""
        for row, number in enumerate(numbers):
            choices = output.answer_type[row].softmax(-1).tolist()
            evidence = 1 / (1 + np.exp(-logits_of(output.sentence, row, int(self._counts[number]))))
            self._found[number] = {
                "choice": Choice(int(np.argmax(choices))).name,
                "class_probs": {choice.name: choices[choice] for choice in Choice},
                "spans": np.flatnonzero(evidence > 0.5).tolist(),
                "span_probs": evidence.tolist(),
            }

    def write(self, path: Path) -> None:
        """Write the predictions in the order of the data folder."""
        documents: dict[str, dict[str, Any]] = {}
        for number, found in sorted(self._found.items()):
            document, hypothesis = self._ids[number]
            documents.setdefault(document, {})[hypothesis] = found
        sets = [{"id": name, "annotation_sets": [{"annotations": found}]} for name, found in documents.items()]
        write_lines(path, [json.dumps(sets)])


@register_task("contract_nli", dataclass=HotpotqaConfig)
class ContractNliTask(HotpotqaTask):
    """Says whether a contract entails, contradicts or does not mention a hypothesis, and finds the evidence."""

    kind = "contract_nli"
    layout = ContractNliSplit.layout
    predictor = ContractNliPredictor
    split_class = ContractNliSplit
    num_types = len(Choice)
