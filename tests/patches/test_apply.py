"""Applying the patches."""

import re

import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.data import data_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.models.ema import EMA
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.optim import FP16Optimizer
from fairseq.trainer import Trainer

from fairseq_poolingformer.patches import table
from fairseq_poolingformer.patching import replace
from tests.patches.helpers import PACKAGE

REPLACED = [
    (checkpoint_utils, "save_checkpoint"),
    (Trainer, "load_checkpoint"),
    (data_utils, "batch_by_size"),
    (options, "parse_args_and_arch"),
    (distributed_utils, "call_main"),
    (distributed_utils, "all_gather_list"),
    (FP16Optimizer, "build_optimizer"),
    (EMA, "__init__"),
]


def test_apply_twice_is_apply_once():
    before = [vars(owner)[name] for owner, name in REPLACED]
    table.apply()
    assert [vars(owner)[name] for owner, name in REPLACED] == before


def test_the_list_has_every_patch_and_nothing_else():
    """A patch is a function whose first argument is the original."""
    found = set()
    for path in (PACKAGE / "patches").rglob("*.py"):
        names = re.findall(r"^def (\w+)\(\s*original: Callable", path.read_text(encoding="utf-8"), re.MULTILINE)
        found |= {(path.stem, name) for name in names if not name.startswith("_")}
    assert found == {(patch.__module__.rpartition(".")[2], patch.__name__) for _, _, patch in table.AROUND}
    assert len(table.AROUND) + len(table.INSTEAD) <= 46


@pytest.mark.parametrize(("owner", "name", "function"), table.INSTEAD)
def test_what_takes_the_place_of_a_function_is_readable_for_torchscript(owner, name, function):
    assert getattr(owner, name) is function
    assert function.replaced.__module__.startswith("fairseq.")


def test_torchscript_bans_repeated_ngrams_as_python_does():
    tokens = torch.tensor([[2, 4, 5, 4, 5, 4, 1, 1], [2, 3, 3, 3, 4, 4, 1, 1]])
    blocker = NGramRepeatBlock(3, use_extension=False)
    expected = blocker(tokens, torch.zeros(2, 9), 2, 1, 5)
    assert torch.equal(torch.jit.script(blocker)(tokens, torch.zeros(2, 9), 2, 1, 5), expected)
    assert expected.isinf().sum() == 1


def test_several_patches_of_one_name_all_apply_once():
    class Owner:
        def method(self):
            return ["original"]

    def first(original, self):
        return ["first", *original(self)]

    def second(original, self):
        return ["second", *original(self)]

    for _ in range(2):
        replace(Owner, "method", first)
        replace(Owner, "method", second)
    assert Owner().method() == ["second", "first", "original"]


def test_a_name_that_is_gone_is_an_error():
    with pytest.raises(AttributeError, match=r"fairseq\.options\.no_such_name is not there: this version of fairseq"):
        replace(options, "no_such_name", lambda original: original)


def test_torch_before_safe_loading_is_refused(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    with pytest.raises(ImportError, match=r"torch 2\.10"):
        table.apply()
