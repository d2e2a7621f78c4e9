"""Definitions of several modules in one file."""

import pytest

from fairseq_poolingformer.huggingface.bundle import Bundle

BASE = """\
# with a comment
\"\"\"The base.\"\"\"
import math


def run(x):  # twice
    return _times(x, 2)


def _times(x, n):
    return x * n
"""
OTHER = """\
\"\"\"Another one.\"\"\"
from pack import base
from pack.extra import Slow


def run(run, n=1):
    return base.run(run) + n


# why
TABLE = {
    "slow": Slow,
    "base": base,
}


class Model(Slow, dict):
    def call(self, x):
        _times = [run(base) for base in x]
        return {"all": _times}
"""
EXTRA = "class Slow:\n    pass\n"


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "pack"
    folder.mkdir()
    for name, text in {"base": BASE, "other": OTHER, "extra": EXTRA, "__init__": ""}.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def test_names_that_two_modules_share_are_told_apart_and_local_ones_are_left(package):
    text = Bundle(package, {"file": [("other", "Model"), ("other", "TABLE")]}, {("extra", "Slow")}).text("file")
    found = {}
    exec(text, found)
    assert found["Model"]().call([3, 4]) == {"all": [7, 9]}
    assert found["TABLE"]["base"].run(5) == 10
    assert list(found["TABLE"]) == ["base"]
    assert found["Model"].__mro__[1] is dict
    assert {"base_run", "other_run", "_times"} <= set(found)
    assert "import math" not in text  # nothing uses it
    assert "# other.py: Another one.\n" in text
    assert "# why\nTABLE" in text
    assert "def base_run(x):  # twice" in text


def test_a_file_imports_what_an_earlier_one_has(package):
    wanted = {"first": [("base", "run")], "second": [("other", "run")]}
    bundle = Bundle(package, wanted, set())
    assert "from .first import base_run\n" in bundle.text("second")
    assert "class Slow" not in bundle.text("first") + bundle.text("second")


def test_what_is_needed_cannot_be_left_out(package):
    with pytest.raises(ValueError, match=r"other, line 7: base.run is left out"):
        Bundle(package, {"file": [("other", "run")]}, {("base", "run")})


def test_equal_texts_that_mean_different_things_are_refused(package):
    same = "def twice(x):\n    return size(x)\n\n\ndef size(x):\n    return {}\n"
    for name, size in (("one", "len(x)"), ("two", "x")):
        (package / f"{name}.py").write_text(same.format(size))
    with pytest.raises(ValueError, match="several definitions would be twice"):
        Bundle(package, {"file": [("one", "twice"), ("two", "twice")]}, set())
