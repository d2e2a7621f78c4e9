"""Poolingformer for fairseq: the ``--user-dir`` entry.

Importing this package imports nothing else, so that ``fairseq_poolingformer.attention`` needs torch alone and
``poolingformer-score --help`` answers at once. :func:`register` patches fairseq and registers the plugin's models,
tasks, criterions, optimizers and scorer. It runs by itself where fairseq asks for the plugin (``--user-dir``), and
wherever fairseq was imported first.
"""

import os
import sys
from importlib import import_module

__version__ = "0.1.0"

# modules that register something with fairseq when they are imported
REGISTERED = (
    *("models.bart", "models.roberta", "char_lm.models", "char_lm.task", "char_lm.loss"),
    *(f"training.{name}" for name in ("optimizers", "staged_lr", "linear_cross_entropy")),
    *(f"tasks.summarization.{name}" for name in ("task", "scorer")),
    *(f"tasks.masked_lm.{name}" for name in ("task", "loss")),
    *(f"tasks.question_answering.{name}" for name in ("task", "loss")),
    *(f"tasks.{name}.task" for name in ("classification", "coreference", "hotpotqa", "triviaqa", "wikihop")),
    "tasks.shared.loss",
)


def register() -> None:
    """Patch fairseq (:mod:`fairseq_poolingformer.patches`) and register the plugin; calling it again changes nothing.

    Raises:
        ModuleNotFoundError: fairseq is not installed.
        ImportError: torch is too old to load checkpoints safely.
    """
    from fairseq_poolingformer import patches

    patches.apply()
    for name in REGISTERED:
        import_module(f"{__name__}.{name}")


class _UserDir(list):
    """The package's ``__path__``, which registers the plugin when fairseq looks for its ``--user-dir`` there.

    fairseq imports a ``--user-dir`` that is not in ``sys.modules``. When it is, fairseq only asks whether the folder is
    in the module's ``__path__``, by comparing strings.
    """

    def __contains__(self, folder: object) -> bool:
        found = os.path.realpath(str(folder)) in map(os.path.realpath, self)
        if found:
            register()
        return found


__path__ = _UserDir(__path__)

if sys.modules.get("fairseq") is not None:
    register()
