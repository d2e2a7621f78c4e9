"""What checkpoints hold is read as torch and pickle read it; what has no place among data becomes plain."""

import argparse
import collections
import io

import numpy as np
import pytest
import torch
from fairseq.logging import meters
from omegaconf import OmegaConf

from fairseq_poolingformer.checkpoint_reader.files import read

BASE = torch.arange(24.0).reshape(4, 6)
TIED = torch.nn.Embedding(5, 2)
VALUES = {
    "tensors of one storage": {"all": BASE, "transposed": BASE.t(), "part": BASE[1:3, ::2], "row": BASE[2]},
    "types": [torch.ones(3).to(kind) for kind in (torch.float16, torch.bfloat16, torch.float64, torch.bool)],
    "integers": [torch.arange(3).to(kind) for kind in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)],
    "no elements": [torch.empty(0), torch.empty(3, 0, 2), torch.tensor(3)],
    "parameters": [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.arange(2), requires_grad=False)],
    "state dict": torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).state_dict(),
    "tied": collections.OrderedDict(a=TIED.weight, b=TIED.weight),
    "optimizer": torch.optim.Adam([torch.nn.Parameter(torch.ones(2))]).state_dict(),
    "options": argparse.Namespace(arch="bart_large", lr=[0.1], empty=argparse.Namespace()),
    "text": ["", "é", "長" * 300, "\ud800", "a\nb"],
    "numbers": [0, 255, 256, 65536, -1, 2**31, -(2**63), 2**200, 0.5, float("inf"), True, False, None],
    "bytes": [b"", b"\x00\xff" * 200],
    "containers": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), {1, "a"}, set(), {1: {"a": None}, 0.5: [], None: ()}],
    "collections": [collections.Counter("abca"), collections.defaultdict(list, {"a": [1]}), collections.OrderedDict()],
    "torch": [torch.Size([2, 3]), torch.device("cpu"), torch.device("cuda:1"), torch.float16, torch.bfloat16],
    "numpy scalars": [np.float64(0.25), np.int64(-3), np.bool_(True), np.str_("é"), np.bytes_(b"ab"), np.str_("")],
    "numpy arrays": [
        np.arange(6, dtype=np.int16).reshape(2, 3),
        np.array(["ab", "c"]),
        np.zeros((0, 4)),
        np.array(2.5),
    ],
    "numpy orders": [np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(3, dtype=">f4")],
    "a value several times": [BASE, [shared := [1, 2]], shared],
}


def saved(value, zipped=True, protocol=2):
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=zipped, pickle_protocol=protocol)
    return file


def same(first, second):
    """Whether two values are equal in type, content, and the memory that they share."""
    if isinstance(second, collections.defaultdict):
        return type(first) is dict and first == second
    if type(first) is not type(second):
        return False
    if isinstance(first, torch.Tensor):
        kinds = [(x.shape, x.stride(), x.dtype, x.requires_grad) for x in (first, second)]
        return kinds[0] == kinds[1] and torch.equal(first, second)
    if isinstance(first, np.ndarray | np.generic):
        order = np.isfortran(first) == np.isfortran(second) if isinstance(first, np.ndarray) else True
        return order and first.dtype == second.dtype and np.array_equal(first, second)
    if isinstance(first, dict):
        return list(first) == list(second) and all(same(first[key], second[key]) for key in first)
    if isinstance(first, argparse.Namespace):
        return same(vars(first), vars(second))
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return first == second


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("name", VALUES)
def test_values_are_those_that_were_saved(name, zipped, protocol):
    file = saved(VALUES[name], zipped, protocol)
    found = read(file)
    file.seek(0)
    expected = torch.load(file, weights_only=False)
    assert same(found, expected)


@pytest.mark.parametrize("zipped", [True, False])
def test_tensors_share_memory_as_before(zipped):
    found = read(saved(VALUES["tensors of one storage"], zipped))
    found["all"][2, 0] = -1
    assert found["transposed"][0, 2] == found["row"][0] == -1
    tied = read(saved(VALUES["tied"], zipped))
    assert tied["a"].data_ptr() == tied["b"].data_ptr()


def test_a_state_dict_keeps_the_versions_of_its_modules():
    state = VALUES["state dict"]
    assert read(saved(state))._metadata == state._metadata


@pytest.mark.parametrize("core", [b"numpy._core", b"numpy.core"])
def test_the_modules_of_both_numpys(core):
    here = np.float64(0).__reduce__()[0].__module__.rpartition(".")[0].encode()
    content = saved([np.float64(27.5), np.arange(3)], zipped=False).getvalue().replace(here, core)
    assert core in content
    scalar, array = read(io.BytesIO(content))
    assert (scalar, array.tolist()) == (27.5, [0, 1, 2])


@pytest.mark.parametrize("module", [b"fairseq.logging.meters", b"fairseq.meters"])
def test_meters_become_dictionaries(module):
    """Released checkpoints hold fairseq's meters, which fairseq no longer reads."""
    held = collections.OrderedDict(train_loss=meters.AverageMeter(), wall=meters.TimeMeter())
    held["train_loss"].update(3, 2)
    by_name = meters.MetersDict()
    by_name.add_meter("x", meters.StopwatchMeter(), 1)
    content = saved([held, by_name], zipped=False).getvalue().replace(b"fairseq.logging.meters", module)
    assert module in content
    found, found_by_name = read(io.BytesIO(content))
    assert found["train_loss"] == vars(held["train_loss"])
    assert found_by_name["x"]["n"] == 0


def test_configurations_of_omegaconf_become_plain():
    """Early hydra checkpoints hold them; fairseq makes its configuration of plain dictionaries again."""
    content = {"a": {"b": [1, 2.5, "c", None, True, {"d": "???"}]}, "i": "${a.b}", "none": None}
    configuration = OmegaConf.create({**content, "no list": OmegaConf.create([])})
    configuration["no dict"] = OmegaConf.create(None)
    assert read(saved({"cfg": configuration}))["cfg"] == {**content, "no list": [], "no dict": None}
