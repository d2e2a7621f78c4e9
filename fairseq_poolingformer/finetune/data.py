"""What a model is trained on: data as people have them, or a data folder that was made already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fairseq_poolingformer.finetune.choices import NOT_TRAINED
from fairseq_poolingformer.finetune.processes import Commands
from fairseq_poolingformer.finetune.start import Start
from fairseq_poolingformer.preprocess.guess import guess
from fairseq_poolingformer.preprocess.pipeline.run import Corpus
from fairseq_poolingformer.tasks import registry
from fairseq_poolingformer.tasks.shared.labels import AMOUNT_LABEL
from fairseq_poolingformer.text.json_file import read_json_file

VOCABULARY = 8000  # symbols of a tokenizer that is trained on the data, at most


class Data:
    """The data of a job.

    Args:
        data: what the user names.
        flags: the user's flags for preprocessing and training.
        task: as for :func:`~fairseq_poolingformer.preprocess.guess.guess`.

    Attributes:
        name: what the user names.
        preset: the release that this is; "" for others.
        is_divided: whether a split was taken out of the training files.
        task: fairseq's ``--task``.
        text: what is learned from what, in words.
        training_flags: those of the flags that are not of preprocessing.
        corpus: the data as they were found; None for a data folder.
        counts: the examples of each split; empty before preprocessing.
        notes: sentences for people.

    Raises:
        ValueError: nobody can learn from these data as they are.
    """

    def __init__(self, data: str, flags: Sequence[str], task: str | None) -> None:
        self.name, self.preset, self.is_divided = data, "", False
        self._folder = Path(data) if (Path(data) / "corpus.json").is_file() else None
        self.corpus: Corpus | None = None
        self.counts: Mapping[str, int] = {}
        self.notes: Sequence[str] = ()
        if self._folder:
            self.task, self.text, self.training_flags = self._of_folder(), "of a data folder", list(flags)
            return
        self._found = guess(data, flags, task)
        self.corpus, self.notes = self._found.corpus(), self._found.notes
        self.task, self.text = self._found.purpose.task, self._found.purpose.text
        self.training_flags, self.is_divided = self._found.others, self._found.is_divided
        self.preset = self._found.purpose.preset

    def _of_folder(self) -> str:
        described = read_json_file(self._folder / "corpus.json")
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
        described = read_json_file(self._folder / "corpus.json") if self._folder else self.corpus.entries
        return list(described["labels"])

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
