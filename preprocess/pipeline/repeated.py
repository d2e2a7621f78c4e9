"""Documents and files that several splits have: what is validated on must not be trained on."""

import itertools
from collections.abc import Iterable, Mapping

import numpy as np

from .parts import Part

EXAMPLES = 3  # named in each line

Parts = Iterable[tuple[Part, np.ndarray, np.ndarray]]  # each with (n,) which examples are taken, (n,) their digests


def shared_documents(splits: Mapping[str, Parts]) -> list[str]:
    """Return a line for each two splits with the same documents: how many, and the ids of some."""
    lines = []
    digests = {
        name: np.concatenate([np.empty(0, np.uint64), *(found[take] for _, take, found in parts)])
        for name, parts in splits.items()
    }
    for first, second in itertools.combinations(splits, 2):
        places = np.flatnonzero(np.isin(digests[second], digests[first]))
        if not len(places):
            continue
        others = [int(np.flatnonzero(digests[first] == digests[second][place])[0]) for place in places[:EXAMPLES]]
        ids = zip(_ids(splits[second], places[:EXAMPLES].tolist()), _ids(splits[first], others), strict=True)
        examples = ", ".join(f"{name} ({first}: {other})" for name, other in ids)
        count = len(digests[second])
        lines.append(f"{second}: {len(places)} of {count} documents are in {first}, too, such as {examples}")
    return lines


def shared_files(inputs: object) -> list[str]:
    """Return a line for each two splits that are made of the same file.

    Args:
        inputs: what identifies the input; looked at where it is of :func:`~preprocess.pipeline.records.describe_files`.
    """
    if not isinstance(inputs, dict):
        return []
    found = {
        split: {file["sha256"]: file["file"] for file in files if isinstance(file, dict) and "sha256" in file}
        for split, files in inputs.items()
        if isinstance(files, list)
    }
    return [
        f"{first} and {second} are made of the same file: {found[second][sha256]}"
        for first, second in itertools.combinations(found, 2)
        for sha256 in found[second]
        if sha256 in found[first]
    ]


def _ids(parts: Parts, places: list[int]) -> list[str]:
    """The ids of examples, given their places among those that are taken."""
    ids: dict[int, str] = {}
    before = 0
    for part, take, _ in parts:
        rows = np.flatnonzero(take)
        if inside := [place for place in places if before <= place < before + len(rows)]:
            texts = part.load()["texts"]["id"]
            ids.update({place: texts[rows[place - before]] for place in inside})
        before += len(rows)
    return [ids[place] for place in places]
