import pickle
import sys

import pytest

from preprocess.wikitext.bounded import Bounds, clean


def test_an_interrupted_page_does_not_block_the_next(monkeypatch):
    bounds = Bounds(5, 512)

    def interrupted(request, file):
        file.write(pickle.dumps(request)[:10])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("preprocess.wikitext.bounded.pickle.dump", interrupted)
        with pytest.raises(KeyboardInterrupt):
            clean("[[a|b]]", {}, bounds)
    assert clean("[[a|b]]", {}, bounds) == "b"


def test_the_working_directory_is_not_searched_for_modules(monkeypatch, tmp_path):
    (tmp_path / "mwparserfromhell.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in sys.path if path])
    assert clean("[[a|b]]", {}, Bounds(4, 512)) == "b"
