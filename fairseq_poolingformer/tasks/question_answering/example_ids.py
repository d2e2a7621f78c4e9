"""The kind of a data folder's corpus, and the ids of its examples, whose type the official formats keep."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from fairseq_poolingformer.tasks.question_answering.official_predictions import NATURAL_QUESTIONS, TYDIQA
from fairseq_poolingformer.text.data_folder import QUESTIONS, DataFolder
from fairseq_poolingformer.text.json_values import example_id_of


def example_id_text(example_id: int | str) -> str:
    """Write an id for the first column of ``{split}.id.txt``: as JSON, so that 12 and "12" stay different."""
    return json.dumps(example_id)


@dataclass(frozen=True)
class ExampleIds:
    """The examples of a split as the official formats name them.

    Args:
        kind: ``"natural_questions"`` or ``"tydiqa"``.
        example_ids: (n,) as in the corpus.
        languages: (n,) of the examples; None for Natural Questions.
    """

    kind: str
    example_ids: list[int | str]
    languages: list[str] | None

    @classmethod
    def read(cls, folder: Path, split: str) -> ExampleIds:
        """Read ``corpus.json`` and ``{split}.id.txt``.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: a file is not what preprocessing writes.
        """
        data = DataFolder(Path(folder), QUESTIONS)
        kind = data.corpus().get("kind")
        if kind not in (NATURAL_QUESTIONS, TYDIQA):
            raise ValueError(
                f"{data.corpus_path}: unknown kind {kind!r}; this version knows {NATURAL_QUESTIONS} and {TYDIQA}. "
                "For other downstream tasks there is poolingformer-predict"
            )
        path = data.text(split, "id")
        width = 2 if kind == TYDIQA else 1
        ids, languages = [], []
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                columns = line.rstrip("\n").split("\t")
                if len(columns) != width:
                    raise ValueError(f"{path}, line {number}: {len(columns)} columns where {kind} has {width}")
                try:
                    ids.append(example_id_of({"example_id": json.loads(columns[0])}))
                except ValueError:
                    raise ValueError(f"{path}, line {number}: {columns[0]!r} is no id; preprocess again") from None
                languages.append(columns[-1])
        return cls(kind, ids, languages if kind == TYDIQA else None)

    def __len__(self) -> int:
        return len(self.example_ids)
