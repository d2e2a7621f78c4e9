"""Pages cleaned within bounds of time and memory."""

import pickle

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
