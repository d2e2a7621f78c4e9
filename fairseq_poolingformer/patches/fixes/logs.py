"""Warnings that concern nobody, and logging when fairseq is used as a library."""

import logging
import warnings


def apply() -> None:
    """Hide warnings about fairseq's own code, which asks for pinned memory on every machine, and for old interfaces."""
    warnings.filterwarnings("ignore", message="'pin_memory' argument is set as true but no accelerator")
    warnings.filterwarnings("ignore", message=r"`torch\.cuda\.amp\..* is deprecated", category=FutureWarning)
    warnings.filterwarnings("ignore", category=UserWarning, message=r"(?s).*hydra\.cc/docs")
    warnings.filterwarnings("ignore", category=UserWarning, module=r"hydra\.")


def quiet_logging(level: int = logging.WARNING) -> None:
    """Set the root logger's level, which importing fairseq as a library leaves at DEBUG.

    One of fairseq's modules calls ``logging.basicConfig(level=logging.DEBUG)`` on import, so that a script that imports
    fairseq before it sets up logging prints every library's debug lines. The command-line tools set their own logging
    first and need nothing.

    Args:
        level: The level of the root logger, as in :mod:`logging`.
    """
    logging.getLogger().setLevel(level)
