"""Requirements of the package, with the oldest version of each, and who lacks a library is told which extra brings it.

setup.py reads this file, which therefore imports nothing of the package.
"""

import contextlib
import re
from collections.abc import Iterator

TORCH = "torch>=2.10"  # older ones may run code that a checkpoint holds
TRANSFORMERS = "transformers>=5.23"  # private_names.py has those that were tried
_TEXT = [  # tokenizers, data folders, preprocessing, conversion
    "mwparserfromhell>=0.7",
    "numpy>=2.0",
    "protobuf",  # reads sentencepiece's models, for transformers as for the conversion
    "safetensors",
    "sentencepiece>=0.2.2",  # older ones do not say in bytes where a token lies
    "tiktoken>=0.13",  # older ones are half as fast, and take a special token in text for one
    "tqdm",
]
_SCORING = [
    "nltk",  # rouge-score needs it and words are stemmed with it; named here because it is imported
    "numpy>=2.0",
    "rouge-score",
    "scipy>=1.15",  # bootstrap intervals of ROUGE, correlations, entities in coreference; older ones take no rng
]
REQUIREMENTS = {  # by extra; those of tests, documents and logs are in setup.py
    "text": _TEXT,
    "scoring": _SCORING,
    "fairseq": [*_TEXT, *_SCORING],
    "huggingface": [*_TEXT, "accelerate>=1.3", TRANSFORMERS],  # the first for Trainer
    "cluster": [*_TEXT, "datatrove>=0.5"],  # preprocessing on many machines
    "data": ["pyarrow", "zstandard>=0.19"],  # Parquet, zstd
    "plot": ["matplotlib"],
}
EXTRAS = {  # extra -> what it brings, by the names that are imported
    extra: tuple(re.split("[>=]", line)[0].replace("-", "_") for line in lines) for extra, lines in REQUIREMENTS.items()
}


def is_too_old(version: str, requirement: str) -> bool:
    """Whether a version of a library is older than its requirement says."""
    installed, oldest = (tuple(map(int, text.split(".")[:2])) for text in (version, requirement.split(">=")[1]))
    return installed < oldest


class MissingLibraryError(ModuleNotFoundError, ValueError):
    """Its message says what to install; a ValueError, so that commands print it as a sentence."""


def how_to_install(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install '.[{extra}]' in a clone of fairseq_poolingformer"


def needs(path: object, kind: str, package: str, otherwise: str) -> ValueError:
    """The error for a file that only a package which is not installed can read."""
    return ValueError(f"{path}: is {kind}, which needs the package {package}: {how_to_install('data')}; or {otherwise}")


@contextlib.contextmanager
def needing(extra: str) -> Iterator[None]:
    """Name the extra to install where an import of the block fails because one of its libraries is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        provider = next((name for name in (extra, *EXTRAS) if library in EXTRAS[name]), None)
        if provider is None or isinstance(error, MissingLibraryError):
            raise
        raise MissingLibraryError(f"{library} is not installed: {how_to_install(provider)}", name=error.name) from error
