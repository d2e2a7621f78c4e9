"""Pictures: a panel for each kind of attention."""

import pytest

from fairseq_poolingformer.show.looks import Shares
from fairseq_poolingformer.show.picture import draw

pytest.importorskip("matplotlib")


def test_a_panel_for_each_kind(made_look, tmp_path):
    draw(made_look, tmp_path / "look.svg")
    text = (tmp_path / "look.svg").read_text(encoding="utf-8")
    for title in ("Cross-attention", "Level one", "Level two", "First $1."):
        assert f"<!-- {title}" in text
    draw(made_look, tmp_path / "look.png")
    assert (tmp_path / "look.png").read_bytes().startswith(b"\x89PNG")


def test_other_weights_are_another_picture(made_look, tmp_path):
    draw(made_look, tmp_path / "one.png")
    cross = made_look.views["cross"]
    made_look.views["cross"] = Shares(cross.layers, cross.weights[:, ::-1])
    draw(made_look, tmp_path / "two.png")
    assert (tmp_path / "one.png").read_bytes() != (tmp_path / "two.png").read_bytes()
