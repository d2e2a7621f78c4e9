"""Checkpoints, data folders and transformers' folders made before the package was restructured give what they gave."""

import re

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.before_the_move.outputs import OUTPUTS
from tests.before_the_move.runs import HERE, ROOT

NUMBER = re.compile(r"(-?\d+\.\d+(?:e[-+]?\d+)?)")


@pytest.mark.parametrize(("name", "kind"), [pytest.param(*key, id="-".join(key)) for key in OUTPUTS])
def test_what_was_made_before_the_move_gives_what_it_gave(name, kind, tmp_path, monkeypatch):
    """Within what one processor's arithmetic differs from another's; texts but for their fractions are the same."""
    monkeypatch.chdir(ROOT)
    arrays, texts = OUTPUTS[name, kind](tmp_path)
    expected = HERE / name / "expected"
    before = load_file(expected / f"{kind}.safetensors") if arrays else {}
    assert arrays.keys() - {"moved.mark_names"} == before.keys()  # checkpoints name their marks since then
    for key, value in before.items():
        tolerance = {"rtol": 2e-3, "atol": 1e-7} if key.startswith("moved.") else {"rtol": 1e-5, "atol": 1e-5}
        np.testing.assert_allclose(arrays[key], value, **tolerance, err_msg=key)
    for file, text in texts.items():
        found, old = NUMBER.split(text), NUMBER.split((expected / kind / file).read_text(encoding="utf-8"))
        assert found[::2] == old[::2], file
        assert list(map(float, found[1::2])) == pytest.approx(list(map(float, old[1::2])), rel=1e-4, abs=1e-4), file
