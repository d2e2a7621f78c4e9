"""Poolingformer for fairseq: the ``--user-dir`` entry.

Importing this package imports nothing else, so that ``fairseq_poolingformer.attention`` needs torch alone and
``poolingformer-score --help`` answers at once. :func:`register` patches fairseq and registers the plugin's models,
tasks, criterions, optimizers and scorer. It runs by itself where fairseq asks for the plugin (``--user-dir``), and
wherever fairseq was imported first.
"""

import os
import sys
from collections.abc import Iterable
from importlib.abc import MetaPathFinder

__version__ = "0.1.0"


def register(tasks: Iterable[str] | None = None) -> None:
    """Patch fairseq (:mod:`fairseq_poolingformer.patches`) and register the plugin; calling it again changes nothing.

    Args:
        tasks: register these alone, with the models that they train, to use their checkpoints; None for everything.

    Raises:
        ModuleNotFoundError: fairseq, or a library that the plugin needs, is not installed.
        ImportError: torch is too old to load checkpoints safely.
    """
    from fairseq_poolingformer.extras import MissingLibraryError, needing

    try:
        with needing("fairseq"):
            from fairseq_poolingformer import patches, registration

            patches.apply()
            registration.register(tasks)
    except MissingLibraryError:
        # prints the sentence alone; cannot be imported later, when the import of this package has failed
        from fairseq_poolingformer.patches.fixes import mistakes  # noqa: F401

        raise


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


# modules of version 0.1.0, or the packages that held them -> where they are
MOVED = {
    "attention.weights": "attention.probabilities",
    "cli.eval_lm": "char_lm.eval_lm",
    "cli.sample_lm": "char_lm.sample_lm",
    "cli.score_qa": "cli.score",
    "cli.score_task": "cli.score",
    "compat": "patches",
    "criterions": "tasks",
    "data": "tasks",
    "downstream": "tasks",
    "models.char_lm": "char_lm.models",
    "models.conversion": "weights",
    "models.loading": "weights.loading",
    "models.looks": "show",
    "models.reader": "models.shipped_reader",
    "modules": "models",
    "optim": "training",
    "qa": "tasks.question_answering",
    "scoring": "tasks.summarization",
}


class _Moved(MetaPathFinder):
    """Says where a module is that is imported by its former name."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if not name.startswith(f"{__name__}."):
            return  # every import of the process asks
        own = name.removeprefix(f"{__name__}.")
        former = next((old for old in MOVED if f"{own}.".startswith(f"{old}.")), None)
        if former is not None:
            now = f"{__name__}.{MOVED[former]}"
            raise ModuleNotFoundError(f"{__name__}.{former} is now {now} (CHANGELOG.md)", name=name)


__path__ = _UserDir(__path__)
sys.meta_path.insert(0, _Moved())  # first, since a folder that git leaves behind is a package for Python

if sys.modules.get("fairseq") is not None:
    register()
