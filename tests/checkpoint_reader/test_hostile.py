"""Crafted files: nothing that they name is imported or called, and what they would build is bounded before."""

import argparse
import builtins
import collections
import io
import operator
import os
import pickle
import pickletools
import sys
import zipfile

import numpy as np
import pytest
import torch
from fairseq.logging import meters
from omegaconf import DictConfig, OmegaConf

from fairseq_poolingformer.checkpoint_reader.errors import Malformed, Refused
from fairseq_poolingformer.checkpoint_reader.files import read
from tests.checkpoint_reader.crafted import NUMPY, Crafted, archive, legacy
from tests.checkpoint_reader.watched import watched

GIB = 2**30


def saved(value, **named):
    file = io.BytesIO()
    torch.save(value, file, **named)
    return file


# ----- nothing runs

NAMES = ["os.system", "posix.system", "builtins.eval", "__builtin__.exec", "builtins.getattr", "numpy.load", "torch.x"]
NAMES += ["subprocess.Popen", "functools.partial", "operator.methodcaller", "antigravity.x", "webbrowser.open"]
NAMES += ["torch.load", "torch._utils._rebuild_wrapper_subclass", "builtins.list", "builtins.complex", "builtins.map"]
NAMES += ["numpy.ndarray", "torch.nn.modules.linear.Linear", "fairseq.tasks.x", "sys.exit", "collections.UserDict"]
NAMES += ["argparse.Namespace.__init__", "collections.OrderedDict.update", "torch.Tensor", "torch._utils.eval"]


def text(value):
    return pickle.SHORT_BINUNICODE + bytes([len(value.encode())]) + value.encode()


def name(full, from_stack):
    module, _, member = full.rpartition(".")
    if from_stack:
        return text(module) + text(member) + pickle.STACK_GLOBAL
    return pickle.GLOBAL + f"{module}\n{member}\n".encode()


def called(full, from_stack, instruction):
    arguments = text("touch x") + pickle.TUPLE1
    state = pickle.EMPTY_DICT + text("x") + pickle.NONE + pickle.SETITEM + pickle.BUILD
    return pickle.PROTO + b"\x04" + name(full, from_stack) + arguments + instruction + state + pickle.STOP


CALLED = [
    (full, called(full, from_stack, instruction))
    for full in NAMES
    for from_stack in (False, True)
    for instruction in (pickle.REDUCE, pickle.NEWOBJ)
]


def test_no_name_of_a_file_is_imported_or_called():
    """Python tells of every import, and pickle of every class that it looks up."""
    cases = [make(data) for _, data in CALLED for make in (archive, legacy)]
    outcomes = watched(read, cases, seconds=20, memory=GIB)
    for outcome, (full, _) in zip(outcomes, [case for case in CALLED for _ in range(2)], strict=True):
        assert (outcome.died, outcome.events) == (None, ())
        assert outcome.error == "Refused"
        assert full in outcome.value


def test_the_functions_that_a_checkpoint_names_are_not_called_either():
    """Those of torch, numpy and fairseq, for which the reader has its own."""
    held = {
        "tensor": torch.ones(3),
        "parameter": torch.nn.Parameter(torch.ones(3)),
        "array": np.arange(3.0),
        "scalar": np.float64(1),
        "meter": meters.AverageMeter(),
        "meters": meters.MetersDict(),
        "options": argparse.Namespace(a=1),
        "configuration": OmegaConf.create({"a": [1]}),
        "counter": collections.Counter("ab"),
    }
    file = saved(held)
    data = zipfile.ZipFile(file).read("archive/data.pkl")
    names = {argument for code, argument, _ in pickletools.genops(data) if code.name == "GLOBAL"}
    assert len(names) > 12
    functions = {torch._utils._rebuild_tensor_v2, torch._utils._rebuild_parameter, meters.MetersDict.__init__}
    functions |= {
        torch._utils._rebuild_tensor,
        meters.AverageMeter.__init__,
        DictConfig.__init__,
        DictConfig.__setattr__,
    }
    forbidden = {function.__code__ for function in functions}
    built_in = {np.arange(3).__reduce__()[0], np.float64(0).__reduce__()[0], builtins.eval, builtins.exec, os.system}
    seen, seen_built_in = set(), set()

    def profile(frame, event, argument):
        if event == "call":
            seen.add(frame.f_code)
        elif event == "c_call":
            seen_built_in.add(getattr(argument, "__name__", None))

    sys.setprofile(profile)
    try:
        read(file)
    finally:
        sys.setprofile(None)
    assert len(seen) > 20
    assert not seen & forbidden
    assert not seen_built_in & {function.__name__ for function in built_in} - {None}
    assert "__import__" not in seen_built_in


def test_all_foreign_names_are_named_at_once():
    file = saved([Crafted(os.getcwd, ()), {"a": Crafted(operator.add, (1, 2))}, pickle.Pickler])
    with pytest.raises(Refused, match=r"refers to _?operator\.add, posix\.getcwd, and"):
        read(file)


def test_a_class_that_is_only_named_is_refused_where_it_is_held():
    with pytest.raises(Refused, match=r"argparse\.Namespace"):
        read(saved({"x": argparse.Namespace}))


# ----- tensors


def tensor(storage=("torch", "FloatStorage", "s0", 4), offset=0, size=(2,), stride=(1,), rest=(False, None)):
    """The pickle of a tensor with these numbers."""
    module, kind, key, count = storage
    place = [text("storage"), name(f"{module}.{kind}", True), text(key), text("cpu"), number(count)]
    data = [pickle.PROTO, b"\x04", name("torch._utils._rebuild_tensor_v2", True), pickle.MARK]
    data += [pickle.MARK, *place, pickle.TUPLE, pickle.BINPERSID, number(offset)]
    data += [value(size), value(stride), *map(value, rest), pickle.TUPLE, pickle.REDUCE, pickle.STOP]
    return b"".join(data)


def number(count):
    return pickle.dumps(count, protocol=2)[2:-1]


def value(content):
    return pickle.dumps(content, protocol=2)[2:-1].replace(pickle.BINPUT + b"\x00", b"")


FLOATS = bytes(16)
TENSORS = {
    "beyond its storage": ({"size": (5,)}, Malformed, "outside"),
    "an offset beyond": ({"offset": 3}, Malformed, "outside"),
    "a negative offset": ({"offset": -1}, Malformed, "outside"),
    "a huge offset": ({"offset": 2**62}, Malformed, "outside"),
    "a negative stride": ({"stride": (-1,)}, Malformed, "shape"),
    "a negative size": ({"size": (-1,)}, Malformed, "shape"),
    "a stride of 0": ({"size": (2**40,), "stride": (0,)}, Refused, "share memory"),
    "rows that overlap": ({"size": (2, 2), "stride": (1, 1)}, Refused, "share memory"),
    "a stride beyond": ({"stride": (2**62,)}, Malformed, "outside"),
    "more strides than sizes": ({"stride": (1, 1)}, Malformed, "shape"),
    "a size of text": ({"size": ("2",)}, Malformed, "shape"),
    "sizes that overflow": ({"size": (0, 2**40, 2**40), "stride": (1, 1, 1)}, Malformed, "shape"),
    "a hundred dimensions": ({"size": (1,) * 100, "stride": (1,) * 100}, Malformed, "shape"),
    "properties": ({"rest": (False, None, {"conj": True})}, Refused, "properties"),
    "hooks": ({"rest": (False, {"x": 1})}, Refused, "hooks"),
    "a larger storage than its record": ({"storage": ("torch", "FloatStorage", "s0", 5)}, Malformed, "fit"),
    "a terabyte of a storage": ({"storage": ("torch", "FloatStorage", "s0", 2**40)}, Malformed, "fit"),
    "a negative storage": ({"storage": ("torch", "FloatStorage", "s0", -4)}, Malformed, "lacks its storage"),
    "a storage that is not there": ({"storage": ("torch", "FloatStorage", "s1", 4)}, Malformed, "fit"),
    "a storage elsewhere": ({"storage": ("torch", "FloatStorage", "../data.pkl", 4)}, Malformed, "fit"),
    "complex numbers": ({"storage": ("torch", "ComplexFloatStorage", "s0", 2)}, Refused, "another kind"),
    "quantized numbers": ({"storage": ("torch", "QInt8Storage", "s0", 16)}, Refused, "another kind"),
    "untyped memory": ({"storage": ("torch.storage", "UntypedStorage", "s0", 16)}, Refused, "another kind"),
    "no storage's name": ({"storage": ("os", "FloatStorage", "s0", 4)}, Refused, "another kind"),
    "a gradient of integers": (
        {"storage": ("torch", "LongStorage", "s0", 2), "size": (1,), "rest": (True, None)},
        Malformed,
        "gradient",
    ),
}


@pytest.mark.parametrize("case", TENSORS)
def test_tensors_that_do_not_lie_within_their_storage(case):
    numbers, error, message = TENSORS[case]
    with pytest.raises(error, match=message):
        read(archive(tensor(**numbers), s0=FLOATS))


def test_the_crafted_tensor_is_read_where_nothing_is_wrong():
    assert read(archive(tensor(offset=1, size=(1, 3), stride=(77, 1)), s0=FLOATS)).shape == (1, 3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(2, 2).to_sparse(),
        lambda: torch.empty(3, device="meta"),
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        lambda: torch.ones(2, dtype=torch.complex64),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        lambda: torch.ones(1).expand(2**20, 2**20),
        lambda: torch.arange(5).unfold(0, 3, 1),
        lambda: torch.nn.Linear(1, 1),
        lambda: torch.ones(2).untyped_storage(),
        lambda: torch.ones(2).to(torch.float8_e4m3fn),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_other_kinds_of_tensors_are_refused(make):
    with pytest.raises(Refused):
        read(saved({"x": make()}))


@pytest.mark.parametrize(
    ("storages", "message"),
    [
        ({"s0": (5, FLOATS)}, "another size"),
        ({"s0": (4, FLOATS[:-1])}, "end is missing"),
        ({}, "list of storages"),
        ({"s0": (4, FLOATS), "s1": (4, FLOATS)}, "list of storages"),
        ({"s1": (4, FLOATS)}, "list of storages"),
    ],
)
def test_storages_of_the_former_format(storages, message):
    data = tensor().replace(number(4) + pickle.TUPLE, number(4) + pickle.NONE + pickle.TUPLE)
    assert read(legacy(data, s0=(4, FLOATS))).tolist() == [0, 0]
    with pytest.raises(Malformed, match=message):
        read(legacy(data, **storages))


@pytest.mark.parametrize(("first", "count", "fits"), [(1, 3, True), (3, 2, False), (-1, 2, False), (2, -1, False)])
def test_views_of_storages_of_the_former_format(first, count, fits):
    view = value(("v", first, count))
    data = tensor(size=(1,)).replace(number(4) + pickle.TUPLE, number(4) + view + pickle.TUPLE)
    file = legacy(data, s0=(4, np.arange(4, dtype="<f4").tobytes()))
    if fits:
        assert read(file).tolist() == [first]
    else:
        with pytest.raises(Malformed, match="view"):
            read(file)


def test_a_larger_storage_than_the_file_is_not_made():
    data = tensor(storage=("torch", "FloatStorage", "s0", 2**40))
    data = data.replace(number(2**40) + pickle.TUPLE, number(2**40) + pickle.NONE + pickle.TUPLE)
    with pytest.raises(Malformed, match="shorter than its tensors"):
        read(legacy(data, s0=(4, FLOATS)))


@pytest.mark.parametrize("case", NUMPY)
def test_crafted_values_of_numpy(case):
    with pytest.raises((Refused, Malformed), match="numpy"):
        read(saved({"best": NUMPY[case]}))


# ----- bounds


KEY = pickle.EMPTY_DICT + pickle.EMPTY_TUPLE + pickle.TUPLE1 * 560 + pickle.NONE + pickle.SETITEM + pickle.STOP
DOUBLED = pickle.BINPUT + b"\0" + pickle.BINGET + b"\0" + pickle.TUPLE2
LAUGHS = text("ha") + DOUBLED * 90 + pickle.STOP
ENCODED = name("_codecs.encode", False) + pickle.BINPUT + b"\0" + pickle.BINUNICODE + (2**20).to_bytes(4, "little")
ENCODED += b"x" * 2**20 + text("latin1") + pickle.TUPLE2 + pickle.BINPUT + b"\1" + pickle.REDUCE
OPTIONS = name("argparse.Namespace", False) + pickle.EMPTY_TUPLE + pickle.NEWOBJ
NUMBERS = b"".join(number(k) + pickle.NONE for k in range(100_000))
SPARE = pickle.LONG_BINPUT + (2**32 - 1).to_bytes(4, "little")
COUNTER = name("collections.Counter", False)
ENDLESS = {
    "a key of nested tuples": (KEY, "as a key"),
    "a deep list": (pickle.EMPTY_LIST * 200_000 + pickle.APPEND * 199_999 + pickle.STOP, "nested"),
    "a deep tuple": (pickle.NONE + pickle.TUPLE1 * 200_000 + pickle.STOP, "nested"),
    "deep marks": (pickle.MARK * 200_000 + pickle.STOP, "lacks its values"),
    "a list in itself": (b"]q\0h\0a.", "itself"),
    "shared tuples": (LAUGHS, "endless"),
    "a few shared tuples": (text("ha") + DOUBLED * 60 + pickle.STOP, "endless"),
    "shared text": (text("h" * 200) + DOUBLED * 21 + pickle.STOP, "endless"),
    "bytes of text, again and again": (ENCODED + b"h\0h\1R" * 1000 + pickle.STOP, "bytes beside"),
    "too many values": (b"\x8f" * 3_000_000 + pickle.STOP, "values"),  # sets, which are large
    "too many numbers as keys": (b"}(" + NUMBERS + b"u.", "numbers as keys"),
    "a place beyond memory": (pickle.NONE + SPARE + pickle.STOP, "values"),
    "a long number": (pickle.LONG4 + (2**20).to_bytes(4, "little") + b"\xff" * 2**20 + pickle.STOP, "number"),
    "a text beyond the file": (pickle.BINUNICODE8 + (2**60).to_bytes(8, "little") + b"x.", "bytes beside"),
    "a list of many numbers": (name("builtins.list", False) + pickle.BINBYTES + bytes(4) + b"\x85R.", "builtins.list"),
    "options with names of Python's": (OPTIONS + value({"__class__": 1}) + pickle.BUILD + pickle.STOP, "no name"),
    "a counter of keys that are none": (COUNTER + b"}" + value((1,)) + b"Ns\x85R.", "as a key"),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_what_is_built_is_bounded(case):
    data, message = ENDLESS[case]
    make = legacy if len(case) % 2 else archive
    (outcome,) = watched(read, [make(pickle.PROTO + b"\x04" + data)], seconds=20, memory=GIB)
    assert (outcome.died, outcome.events) == (None, ())
    assert outcome.error in ("Refused", "Malformed")
    assert message in outcome.value


def test_damage_is_found_where_no_tensor_lies():
    data = saved({"w": torch.ones(2)}).getvalue()
    version = zipfile.ZipFile(io.BytesIO(data)).read("archive/version")
    with pytest.raises(Malformed, match="checksum of archive/version"):
        read(io.BytesIO(data.replace(version, bytes(len(version)))))
