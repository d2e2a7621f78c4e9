"""The libraries that the attention does without; setup.py has them as extras, and who lacks one is told which."""

import contextlib
from collections.abc import Iterator

_TEXT = ("mwparserfromhell", "numpy", "protobuf", "safetensors", "sentencepiece", "tiktoken", "tqdm")
_SCORING = ("nltk", "numpy", "rouge_score", "scipy")
_DATA = ("pyarrow", "zstandard")
EXTRAS = {  # of setup.py -> what it brings, by the names that are imported
    "text": _TEXT,
    "scoring": _SCORING,
    "fairseq": (*_TEXT, *_SCORING),
    "huggingface": (*_TEXT, "accelerate", "transformers"),
    "cluster": (*_TEXT, "datatrove"),
    "data": _DATA,
    "plot": ("matplotlib",),
}


class MissingLibraryError(ModuleNotFoundError, ValueError):
    """Its message says what to install; a ValueError, so that commands print it as a sentence."""


def how_to_install(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install '.[{extra}]' in a clone of fairseq_poolingformer"


@contextlib.contextmanager
def needing(extra: str) -> Iterator[None]:
    """Name the extra to install where an import of the block fails because one of its libraries is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        found = next((name for name in (extra, *EXTRAS) if library in EXTRAS[name]), None)
        if found is None or isinstance(error, MissingLibraryError):
            raise
        raise MissingLibraryError(f"{library} is not installed: {how_to_install(found)}", name=error.name) from error
