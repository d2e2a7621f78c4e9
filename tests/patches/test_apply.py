"""Applying the patches."""

import re

import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.distributed import utils as distributed_utils
from fairseq.models.ema import EMA
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.optim import FP16Optimizer
from fairseq.trainer import Trainer

from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.patches import table
from fairseq_poolingformer.patching import replace
from tests.patches.helpers import PACKAGE, TRAINING, num_updates, run

REPLACED = [
    *((checkpoint_utils, "save_checkpoint"), (Trainer, "load_checkpoint"), (options, "parse_args_and_arch")),
    *((distributed_utils, "call_main"), (distributed_utils, "all_gather_list")),
    *((FP16Optimizer, "build_optimizer"), (EMA, "__init__")),
]


def test_apply_twice_is_apply_once():
    before = [vars(owner)[name] for owner, name in REPLACED]
    table.apply()
    assert [vars(owner)[name] for owner, name in REPLACED] == before


def test_the_list_has_every_patch_and_nothing_else():
    """A patch is a function whose first argument is the original."""
    patches = set()
    for path in (PACKAGE / "patches").rglob("*.py"):
        names = re.findall(r"^def (\w+)\(\s*original: Callable", path.read_text(encoding="utf-8"), re.MULTILINE)
        patches |= {(path.stem, name) for name in names if not name.startswith("_")}
    assert patches == {(patch.__module__.rpartition(".")[2], patch.__name__) for _, _, patch in table.AROUND}
    assert len(table.AROUND) + len(table.INSTEAD) <= 52


def test_a_training_of_fairseqs_own_is_the_same_bit_for_bit(corpus, tmp_path):
    """Its last batch, of four examples, is no multiple of --required-batch-size-multiple 8: fairseq drops it."""
    flags = ("--train-subset", "test", "--batch-size", 8, "--max-epoch", 3, "--no-epoch-checkpoints")
    flags += ("--required-batch-size-multiple", 8)
    states = []
    for name, plugin in (("without", ()), ("with", ("--user-dir", PACKAGE))):
        save = ("--save-dir", tmp_path / name)
        run("fairseq_cli.train", corpus, *TRAINING, *flags, *plugin, *save, cwd=tmp_path)
        states.append(load(tmp_path / name / "checkpoint_last.pt"))
    for name in ("model", "last_optimizer_state"):
        torch.testing.assert_close(*(state[name] for state in states), rtol=0, atol=0)
    (history, other_history), (extra, other_extra) = (
        [state[name] for state in states] for name in ("optimizer_history", "extra_state")
    )
    assert history == other_history
    assert (extra["val_loss"], extra.keys()) == (other_extra["val_loss"], other_extra.keys())
    assert num_updates(states[0]) == 3


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

    def inner(original, self):
        return ["inner", *original(self)]

    def outer(original, self):
        return ["outer", *original(self)]

    for patch in (inner, outer) * 2:
        replace(Owner, "method", patch)
    assert Owner().method() == ["outer", "inner", "original"]


def test_a_name_that_is_gone_is_an_error():
    with pytest.raises(AttributeError, match=r"fairseq\.options\.no_such_name is not there: this version of fairseq"):
        replace(options, "no_such_name", lambda original: original)


def test_torch_before_safe_loading_is_refused(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    with pytest.raises(ImportError, match=r"torch>=2\.10, and this is torch 2\.9\.1"):
        table.apply()
