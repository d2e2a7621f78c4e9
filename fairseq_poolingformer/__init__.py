"""Poolingformer for fairseq: the ``--user-dir`` entry.

Importing this package imports nothing else. :func:`register` patches fairseq and registers the plugin's models, tasks,
criterions, optimizers and scorer; it runs by itself where fairseq asks for the plugin, and where fairseq came first.
"""

import os
import sys
from importlib import import_module

__version__ = "0.1.0"

# what registers itself with fairseq when it is imported, beside the tasks with their models and losses
_REGISTERED = ("training.linear_cross_entropy", "training.optimizers")


def register() -> None:
    """Patch fairseq (:mod:`~.patches.table`) and register the plugin; calling it again changes nothing."""
    from fairseq_poolingformer.extras import needing

    with needing("fairseq"):
        from fairseq_poolingformer.patches import table
        from fairseq_poolingformer.tasks import registry

        table.apply()
        for module in _REGISTERED:
            import_module(f"{__name__}.{module}")
        for task in registry.tasks().values():
            task.register()


class _RegisteringPath(list):
    """The package's ``__path__``, which registers the plugin when fairseq looks for its ``--user-dir`` there."""

    # fairseq imports a --user-dir that sys.modules lacks; else it only compares the folder with the module's __path__

    def __contains__(self, folder: object) -> bool:
        is_listed = os.path.realpath(str(folder)) in map(os.path.realpath, self)
        if is_listed:
            register()
        return is_listed


__path__ = _RegisteringPath(__path__)

if sys.modules.get("fairseq") is not None:
    register()
