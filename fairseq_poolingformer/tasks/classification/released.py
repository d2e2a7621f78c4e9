"""The files of IMDB and Hyperpartisan as they are released: ids, labels, articles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from xml.etree import ElementTree

from fairseq_poolingformer.text.input_files import opened

IMDB_LABELS = ("neg", "pos")
HYPERPARTISAN_LABELS = ("false", "true")


def imdb_id(path: Path) -> str:
    """``test/pos/0_10`` for ``…/test/pos/0_10.txt``."""
    return "/".join((*Path(path).parts[-3:-1], Path(path).stem))


def read_imdb(folder: Path) -> dict[str, str]:
    """Read the label of each review in a folder of IMDB's by its id; nothing where there is none."""
    files = [file for label in IMDB_LABELS for file in sorted((folder / label).glob("*.txt"))]
    return {imdb_id(file.resolve()): file.parent.name for file in files}


def read_articles(content: BinaryIO, name: str) -> Iterator[tuple[dict[str, str], list[str]]]:
    """The attributes and the text of each ``<article>`` of a file: of each of its children, and between these."""
    depth, root = 0, None
    try:
        for event, element in ElementTree.iterparse(content, ("start", "end")):
            depth += 1 if event == "start" else -1
            root = element if root is None else root
            if event == "end" and depth == 1:
                if element.tag != "article":
                    raise ValueError(f"{name}: <{element.tag}> is where an <article> must be")
                parts = [element.text, *(text for one in element for text in ("".join(one.itertext()), one.tail))]
                yield dict(element.attrib), list(filter(None, parts))
                root.clear()  # memory is that of one article
    except ElementTree.ParseError as error:
        raise ValueError(f"{name}: not XML, or cut ({error}); fetch it again") from None


def read_ground_truth(path: Path) -> dict[str, str]:
    """Read Hyperpartisan's ground truth: "true" or "false" by article id."""
    labels: dict[str, str] = {}
    with opened(path, utf_8=False) as content:
        for attributes, _ in read_articles(content, str(path)):
            name, label = (attributes.get(key, "") for key in ("id", "hyperpartisan"))
            if not name.strip() or label not in HYPERPARTISAN_LABELS or name in labels:
                raise ValueError(f"{path}, article {name}: needs an id of its own and hyperpartisan=true or false")
            labels[name] = label
    if not labels:
        raise ValueError(f"{path}: no <article id=… hyperpartisan=…> in it")
    return labels
