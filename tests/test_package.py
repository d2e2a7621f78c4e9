"""The page that a package index shows, and the version that the package says it has."""

import re
import runpy
from pathlib import Path

import setuptools

from fairseq_poolingformer import __version__

ROOT = Path(__file__).resolve().parents[1]


def setup_arguments(monkeypatch):
    """The arguments that setup.py gives to setuptools."""
    arguments = {}
    monkeypatch.setattr(setuptools, "setup", arguments.update)
    runpy.run_path(str(ROOT / "setup.py"))
    return arguments


def test_the_description_has_no_links_into_the_repository(monkeypatch):
    description = setup_arguments(monkeypatch)["long_description"]
    assert re.findall(r"\]\((?!https?://)[^)]*\)", description) == []
    assert "![" not in description
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    unlinked = [line for line in readme.splitlines() if "](" not in line and line]
    assert [line for line in description.splitlines() if line in unlinked] == unlinked
    assert "[Poolingformer](https://arxiv.org/abs/2105.04371)" in description
    assert "How this was measured, and what the allocator has to do with it. Where" in description


def test_versions_agree(monkeypatch):
    assert setup_arguments(monkeypatch)["version"] == __version__
    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
