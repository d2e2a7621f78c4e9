"""Preprocessing on many machines by datatrove (the extra ``cluster``): whole files to a machine, in a shared folder.

    from datatrove.executor import SlurmPipelineExecutor
    from fairseq_poolingformer.preprocess.cluster import EncodeFiles

    words = ["--data", "/shared/corpus", "--gpt2-bpe", "/shared/gpt2_bpe", "--output-folder", "/shared/data-bin/mine"]
    step = EncodeFiles("arxiv_pubmed", words)
    SlurmPipelineExecutor([step], tasks=step.count, time="4:00:00", partition="cpu", logging_dir="/shared/logs").run()

The same command on one machine, ``poolingformer preprocess arxiv_pubmed --data …``, then makes the data folder of what
the machines have encoded, and encodes what they have not: its bytes are those of one machine. A machine that is killed
goes on where it was when the script runs again.
"""

import importlib
from collections.abc import Sequence

from fairseq_poolingformer.extras import needing

from .pipeline import data_folder
from .pipeline.run import Work
from .pipeline.vocabulary import choose_tokenizer

with needing("cluster"):
    from datatrove.pipeline.base import PipelineStep


class EncodeFiles(PipelineStep):
    """Encodes the ``count`` files of a corpus, each where datatrove puts it; makes the tokenizer here, once."""

    type, name = "ENCODE", "files of fairseq-poolingformer"

    def __init__(self, corpus: str, options: Sequence[object]) -> None:
        super().__init__()
        command = importlib.import_module(f".{corpus}", __package__)
        args = command.make_parser().parse_args(list(map(str, options)))
        made = command.make_corpus(args)
        self._work = Work(made, choose_tokenizer(args, made), args)
        with data_folder.locked(args.output_folder):
            self._fingerprint = self._work.open()
        self.count = len(self._work.files())

    def run(self, data: object = None, rank: int = 0, world_size: int = 1) -> None:
        """Encode every ``world_size``-th file, from file ``rank`` on."""
        for split, file in self._work.files()[rank::world_size]:
            self._work.encode_file(split, file, self._fingerprint)
