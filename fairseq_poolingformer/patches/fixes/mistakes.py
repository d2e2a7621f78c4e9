"""Errors of this plugin end with their sentence; others keep their traceback, as fairseq's users expect."""

import sys
from collections.abc import Callable
from types import TracebackType

from fairseq_poolingformer.checkpoints import CheckpointError
from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.extras import MissingLibraryError
from fairseq_poolingformer.patches.long_jobs.nonfinite import NonfiniteError
from fairseq_poolingformer.patches.untrusted_files import DictionaryError
from fairseq_poolingformer.text.data_folder import FolderError

FOR_PEOPLE = (CheckpointError, DictionaryError, FolderError, MissingLibraryError, NonfiniteError, UsageError)


def print_one_sentence(
    original: Callable, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """Print the message alone of an error of this plugin, which says all that is needed."""
    if isinstance(error, FOR_PEOPLE):
        print(f"error: {error}", file=sys.stderr)
    else:
        original(kind, error, traceback)
