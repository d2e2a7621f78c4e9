"""What a model is trained on: data as people have them, or a data folder that was made already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fairseq_poolingformer.cli.finetune.choices import NOT_TRAINED
from fairseq_poolingformer.cli.finetune.processes import Commands
from fairseq_poolingformer.cli.finetune.start import Start
from fairseq_poolingformer.preprocess.guess import guess
from fairseq_poolingformer.preprocess.pipeline.run import Corpus
from fairseq_poolingformer.tasks import registry
from fairseq_poolingformer.text.json_file import read_json_file
from fairseq_poolingformer.text.labels import AMOUNT_LABEL

VOCABULARY = 8000  # symbols of a tokenizer that is trained on the data, at most


class Data:
    """The data of a job; ``flags`` are the user's for preprocessing and training, ``task`` is as for :func:`guess`.

    ``task`` is fairseq's then, and ``scorer`` that of ``poolingformer score``.
    """

    def __init__(self, data: str, flags: Sequence[str], task: str | None) -> None:
        self.name, self.preset = data, ""  # the release that this is; "" for others
        self.is_divided = False  # whether a split was taken out of the training files
        self._folder = Path(data) if (Path(data) / "corpus.json").is_file() else None
        self.corpus: Corpus | None = None  # the data as they were found; None for a data folder
        self.counts: Mapping[str, int] = {}  # the examples of each split; empty before preprocessing
        self.notes: Sequence[str] = ()  # sentences for people
        if self._folder:
            self._entries = read_json_file(self._folder / "corpus.json")
            self.task, self.text, self.training_flags = self._of_folder(), "of a data folder", list(flags)
            made_by = self._entries.get("corpus")
        else:
            self._found = guess(data, flags, task)
            purpose, self.notes, self.is_divided = self._found.purpose, self._found.notes, self._found.is_divided
            self.task, self.text, self.preset, made_by = purpose.task, purpose.text, purpose.preset, purpose.corpus
            self.corpus, self.training_flags = self._found.corpus(), self._found.others
            self._entries = self.corpus.entries
        self.scorer = "squad" if made_by == "squad" else self.task

    def _of_folder(self) -> str:
        described = self._entries
        task = registry.of_kind(described.get("kind")) or registry.corpora().get(described.get("corpus"))
        if task is None or task.name in NOT_TRAINED:
            what = f"{task.name}, which docs/pretraining.md and docs/char_lm.md train" if task else "no known task"
            raise ValueError(f"{self._folder}: a data folder of {what}")
        self.counts = described.get("examples", {})
        if lacking := {"train", "valid"} - self.counts.keys():
            raise ValueError(f"{self._folder}: has no {min(lacking)} split; preprocess again, with --valid-share 0.1")
        return task.name

    def labels(self) -> list[str]:
        """The labels that are to be learned."""
        return list(self._entries["labels"])

    def preprocess(self, commands: Commands, folder: Path, start: Start) -> Path:
        """Make the data folder with the model's tokenizer, and a report of it the first time; return the folder."""
        if self._folder:
            return self._folder
        words = list(self._found.options)
        if not any(word.startswith(("--gpt2-bpe", "--sentencepiece-")) for word in words):
            words += start.tokenizer or ("--sentencepiece-train", str(VOCABULARY), "--sentencepiece-fewer")
        words += ["--labels", *start.labels] if start.labels not in ((), (AMOUNT_LABEL,)) else []
        words += ["--output-folder", str(folder), *["--report"] * (not (folder / "corpus.json").is_file())]
        commands.run("poolingformer", "preprocess", self._found.purpose.corpus, *words)
        self.counts = read_json_file(folder / "corpus.json")["examples"]
        return folder
