"""Pictures: a panel for each kind of attention."""

import pytest

from fairseq_poolingformer.show.picture import draw

pytest.importorskip("matplotlib")


def test_a_panel_for_each_kind(made_look, tmp_path):
    draw(made_look, tmp_path / "look.svg")
    text = (tmp_path / "look.svg").read_text(encoding="utf-8")
    for title in ("Cross-attention", "Level one", "Level two", "First $1."):
        assert f"<!-- {title}" in text
    draw(made_look, tmp_path / "look.png")
    assert (tmp_path / "look.png").read_bytes().startswith(b"\x89PNG")
