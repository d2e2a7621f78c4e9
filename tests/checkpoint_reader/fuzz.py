"""Random files of torch: pickles over the grammar of instructions, mutations of good files, and attacks."""

from __future__ import annotations

import argparse
import collections
import functools
import io
import pickle
import random
import zipfile
from collections.abc import Callable

import numpy as np
import torch
from omegaconf import OmegaConf

from tests.checkpoint_reader.crafted import MAGIC

NAMES = [
    "argparse.Namespace",
    "collections.OrderedDict",
    "collections.Counter",
    "collections.defaultdict",
    "torch.Size",
]
NAMES += ["_codecs.encode", "torch.device", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor"]
NAMES += ["torch._utils._rebuild_parameter", "numpy.dtype", "numpy.core.multiarray._reconstruct", "numpy.ndarray"]
NAMES += ["numpy.core.multiarray.scalar", "builtins.set", "__builtin__.bytes", "fairseq.meters.AverageMeter"]
NAMES += ["fairseq.logging.meters.MetersDict", "omegaconf.dictconfig.DictConfig", "omegaconf.listconfig.ListConfig"]
NAMES += ["omegaconf.base.ContainerMetadata", "omegaconf.nodes.AnyNode", "torch.float16", "torch.FloatStorage"]
NAMES += ["torch.cuda.LongStorage", "torch.ComplexFloatStorage", "builtins.eval", "os.system", "builtins.list", "a.b"]
TEXTS = ["model", "args", "cfg", "extra_state", "_metadata", "_content", "_val", "storage", "s0", "s1", "latin1", "f8"]
TEXTS += [
    "",
    "x",
    "é",
    "長" * 50,
    "U9",
    "S0",
    "O",
    "<",
    "__class__",
    "cuda:0",
    "w" * 3000,
    "${x}",
    "priorities",
    "\ud800",
]
NUMBERS = [0, 1, 2, 3, 4, 16, 255, 2**16, 2**31 - 1, -1, -3]
CHECKED = pickle.dumps  # of a value alone, for its instructions


def parts(value: object) -> bytes:
    """The instructions that push a plain value."""
    return CHECKED(value, protocol=3)[2:-1]


def named(name: str, rng: random.Random) -> bytes:
    module, _, member = name.rpartition(".")
    if rng.random() < 0.5:
        return pickle.GLOBAL + f"{module}\n{member}\n".encode()
    return parts(module) + parts(member) + pickle.STACK_GLOBAL


class Grammar:
    """Makes pickles whose instructions mostly have the values that they need.

    Args:
        rng: of all choices.
        places: the number of parts of a storage's place: 5 in a zip archive, 6 before.
    """

    def __init__(self, rng: random.Random, places: int) -> None:
        self.rng, self.places, self.memo = rng, places, 0

    def pickle(self) -> bytes:
        body = b"".join(self.value(self.rng.randint(0, 6)) for _ in range(self.rng.choice([1, 1, 1, 2])))
        if self.rng.random() < 0.3:
            body = pickle.EMPTY_DICT + parts("model") + body + pickle.SETITEM
        data = pickle.PROTO + bytes([self.rng.choice([2, 2, 3, 4, 5])]) + body + pickle.STOP
        return self.mutated(data) if self.rng.random() < 0.4 else data

    def mutated(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self.rng.randint(1, 4)):
            place = self.rng.randrange(max(len(changed), 1))
            kind = self.rng.randrange(5)
            if kind == 0:
                changed[place : place + 1] = bytes([self.rng.randrange(256)])
            elif kind == 1:
                changed[place:place] = self.rng.choice(
                    [b"b", b"R", b"\x81", b"u", b"s", b"(", b"t", b"q\0", b"h\0", b"Q"]
                )
            elif kind == 2:
                del changed[place : place + self.rng.randint(1, 8)]
            elif kind == 3:
                end = place + self.rng.randint(1, 60)
                changed[place:place] = changed[place:end] * self.rng.choice([1, 2, 50])
            else:
                changed = changed[: place + 1]
        return bytes(changed)

    def number(self) -> bytes:
        if self.rng.random() < 0.1:
            size = self.rng.choice([1, 8, 33, 255])
            return pickle.LONG1 + bytes([size]) + self.rng.randbytes(size)
        return parts(self.rng.choice([*NUMBERS, 2**63, -(2**70), self.rng.randrange(2**32)]))

    def leaf(self) -> bytes:
        choice = self.rng.randrange(8)
        if choice < 2:
            return self.number()
        if choice < 5:
            return parts(self.rng.choice(TEXTS))
        if choice == 5 and self.memo:
            return pickle.BINGET + bytes([self.rng.randrange(min(self.memo, 256))])
        if choice == 6:
            return named(self.rng.choice(NAMES), self.rng)
        return parts(
            self.rng.choice([None, True, False, 0.5, float("nan"), float("-inf"), b"", b"12345678", b"\xff" * 40])
        )

    def kept(self, data: bytes) -> bytes:
        """Put the value into the memo, sometimes."""
        if self.rng.random() > 0.4:
            return data
        place = self.memo if self.rng.random() < 0.95 else self.rng.choice([self.memo + 5, 0, 2**20, 2**32 - 1])
        self.memo = max(self.memo, min(place, 255) + 1)
        return data + (pickle.MEMOIZE if self.rng.random() < 0.1 else pickle.LONG_BINPUT + place.to_bytes(4, "little"))

    def value(self, depth: int) -> bytes:
        if depth <= 0:
            return self.kept(self.leaf())
        makers = [
            self.sequence,
            self.mapping,
            self.call,
            self.tensor,
            self.array,
            self.options,
            self.doubled,
            self.leaf,
        ]
        make = self.rng.choice(makers)
        return self.kept(make() if make == self.leaf else make(depth - 1))

    def values(self, depth: int, most: int = 5) -> bytes:
        return b"".join(self.value(depth - self.rng.randint(0, 2)) for _ in range(self.rng.randint(0, most)))

    def sequence(self, depth: int) -> bytes:
        marked = pickle.MARK + self.values(depth)
        return self.rng.choice(
            [
                marked + pickle.TUPLE,
                pickle.EMPTY_LIST + marked + pickle.APPENDS,
                pickle.EMPTY_SET + marked + pickle.ADDITEMS,
                pickle.EMPTY_LIST + self.value(depth) + pickle.APPEND,
                self.value(depth) + pickle.TUPLE1,
                self.value(depth) + self.value(depth) + pickle.TUPLE2,
            ]
        )

    def entries(self, depth: int) -> bytes:
        keys = [self.rng.choice(TEXTS) if self.rng.random() < 0.8 else self.rng.choice(NUMBERS) for _ in range(4)]
        items = [(parts(key) if self.rng.random() < 0.95 else self.value(1)) + self.value(depth) for key in keys]
        return pickle.MARK + b"".join(items[: self.rng.randint(0, 4)]) + pickle.SETITEMS

    def mapping(self, depth: int) -> bytes:
        return pickle.EMPTY_DICT + self.entries(depth)

    def call(self, depth: int) -> bytes:
        """A name that is called with arguments, and then perhaps gets a state and entries."""
        arguments = self.rng.choice([pickle.EMPTY_TUPLE, self.value(depth) + pickle.TUPLE1, self.sequence(depth)])
        data = named(self.rng.choice(NAMES), self.rng) + arguments + self.rng.choice([pickle.REDUCE, pickle.NEWOBJ])
        if self.rng.random() < 0.4:
            data += self.mapping(depth) + pickle.BUILD
        return data + (self.entries(depth) if self.rng.random() < 0.2 else b"")

    def options(self, depth: int) -> bytes:
        name = self.rng.choice(["argparse.Namespace", "omegaconf.dictconfig.DictConfig", "fairseq.meters.TimeMeter"])
        return named(name, self.rng) + pickle.EMPTY_TUPLE + pickle.NEWOBJ + self.mapping(depth) + pickle.BUILD

    def tensor(self, depth: int) -> bytes:
        kind = self.rng.choice(["torch.FloatStorage", "torch.HalfStorage", "torch.LongStorage", "torch.BoolStorage"])
        key = self.rng.choice(["s0", "s0", "s1", "s2"])
        count = self.rng.choice([4, 16, 16, 16, 0, 2**40, -1]) if self.rng.random() < 0.2 else 16
        place = parts("storage") + named(kind, self.rng) + parts(key) + parts("cpu") + parts(count)
        place += (parts(None) if self.rng.random() < 0.9 else parts(("v", 2, 3))) if self.places == 6 else b""
        size = [self.rng.choice([1, 2, 4, 16, 0, 2**40, -1]) for _ in range(self.rng.randint(0, 3))]
        strides = [self.rng.choice([1, 2, 4, 0, -1, 2**62]) for _ in range(len(size) + (self.rng.random() < 0.05))]
        if self.rng.random() < 0.6:
            size, strides = self.rng.choice([([16], [1]), ([4, 4], [4, 1]), ([2, 2], [8, 3]), ([], [])])
        numbers = parts(self.rng.choice([0, 0, 0, 1, 15, 16, -1, 2**62])) + parts(tuple(size)) + parts(tuple(strides))
        rest = parts(self.rng.choice([False, False, True, None, 3])) + self.rng.choice([pickle.NONE, pickle.EMPTY_DICT])
        data = named("torch._utils._rebuild_tensor_v2", self.rng) + pickle.MARK + pickle.MARK + place + pickle.TUPLE
        data += pickle.BINPERSID + numbers + rest + pickle.TUPLE + pickle.REDUCE
        if self.rng.random() < 0.3:
            return named("torch._utils._rebuild_parameter", self.rng) + data + rest + pickle.TUPLE3 + pickle.REDUCE
        return data

    def array(self, depth: int) -> bytes:
        code = self.rng.choice(["f8", "i4", "U2", "S3", "b1", "O8", "U0", "V4", "c8", "M8", "f77", "U999999"])
        state = (3, self.rng.choice("<>=|!"), None, None, None, self.rng.choice([-1, 8, 1 << 40]), -1, 0)
        kind = named("numpy.dtype", self.rng) + parts((code, False, True)) + pickle.REDUCE
        kind += parts(state) + pickle.BUILD if self.rng.random() < 0.9 else b""
        content = self.rng.randbytes(self.rng.choice([0, 8, 8, 16, 24, 4]))
        if self.rng.random() < 0.4:
            return named("numpy.core.multiarray.scalar", self.rng) + kind + parts(content) + b"\x86R"
        shape = self.rng.choice([(1,), (2,), (1, 2), (), (0, 2**40), (-1,), (2**40,), (3, 1), "ab"])
        data = named("numpy.core.multiarray._reconstruct", self.rng) + named("numpy.ndarray", self.rng)
        data += parts((0,)) + parts(b"b") + pickle.TUPLE3 + pickle.REDUCE + pickle.MARK + parts(1) + parts(shape)
        return data + kind + parts(self.rng.choice([True, False])) + parts(content) + pickle.TUPLE + pickle.BUILD

    def doubled(self, depth: int) -> bytes:
        """A value that holds another many times."""
        twice = b"".join(pickle.LONG_BINPUT + bytes([9, 0, 0, 0]) + pickle.BINGET + b"\x09" + b"\x86" for _ in range(1))
        self.memo = max(self.memo, 10)
        return self.value(depth) + twice * self.rng.choice([1, 3, 30, 200, 3000])


def attack(rng: random.Random) -> bytes:
    """A pickle that is small beside what it would build, or slow."""
    times, number = rng.choice([10, 1000, 100_000]), rng.randrange(2**20)
    text = pickle.BINUNICODE + (2**16).to_bytes(4, "little") + b"x" * 2**16
    encode = pickle.GLOBAL + b"_codecs\nencode\n"
    options = pickle.GLOBAL + b"argparse\nNamespace\n)\x81"
    entries = b"}(" + b"".join(parts(f"k{k}") + b"N" for k in range(2000)) + b"u"
    numbers = b"".join(parts(k * rng.choice([1, 2**20, 2**61 - 1, 2**32 + 1])) + b"N" for k in range(times // 10))
    body = rng.choice(
        [
            rng.choice([b"]", b"}", b"\x8f", b")", b"N", b"("]) * times * 10,
            rng.choice([b"]", b"}", b"\x8f"]) * times + b"a" * times,
            b"N" + rng.choice([b"\x85", b"q\0h\0\x86"]) * times,
            b"}" + b")" + b"\x85" * times + b"Ns",
            encode + b"q\0" + text + parts("latin1") + b"\x86q\1R" + b"h\0h\1R" * times,
            options + b"q\0" + entries + b"q\1b" + b"h\0h\1b" * times,
            options + b"0" * times,
            b"}(" + numbers + b"u",
            b"\x8f(" + numbers + b"\x90",
            b"N" + b"".join(b"r" + rng.randrange(number + 1).to_bytes(4, "little") for _ in range(times // 10)),
            b"\x8b" + (number * 8).to_bytes(4, "little") + b"\x7f" * min(times * 10, number * 8),
            b"\x8d" + (2 ** rng.randint(10, 62)).to_bytes(8, "little") + b"x" * times,
            parts("h" * times) + b"q\0h\0\x86" * rng.choice([5, 15, 25]),
            b"cbuiltins\nset\n]q\0(" + numbers.replace(b"N", b"") + b"e\x85R",
            b"".join(b"c" + b"a" * rng.choice([5, 300, 3000]) + b"\nb\n" for _ in range(times // 100)),
            parts(bytes(times)) * 20 + b"t",
        ]
    )
    return b"\x80\x04" + body + b"."


@functools.cache
def good(zipped: bool) -> bytes:
    """A checkpoint with everything that one may hold."""
    weight = torch.arange(16.0)
    state = {
        "args": argparse.Namespace(arch="x", lr=[0.1], sub=argparse.Namespace(a=1)),
        "cfg": OmegaConf.create({"model": {"a": [1, "x"]}}),
        "model": collections.OrderedDict(a=weight, b=weight.view(4, 4).t(), c=torch.nn.Parameter(weight[:3])),
        "optimizer_history": [{"num_updates": 3, "best": np.float64(1.5)}],
        "extra_state": {
            "array": np.arange(6).reshape(2, 3),
            "text": np.array(["ab"]),
            "set": {1, "a"},
            "size": weight.shape,
        },
        "last_optimizer_state": {"state": {0: {"step": 1, "exp": weight.half()}}, "count": collections.Counter("ab")},
        "bytes": b"\xff\0",
    }
    file = io.BytesIO()
    torch.save(state, file, _use_new_zipfile_serialization=zipped)
    return file.getvalue()


def mutated_file(rng: random.Random) -> bytes:
    """A good file with changed bytes; those of its records, with checksums that fit, or any."""
    data = good(rng.random() < 0.6)
    if data.startswith(b"PK") and rng.random() < 0.6:
        source, file = zipfile.ZipFile(io.BytesIO(data)), io.BytesIO()
        changed = rng.choice([name for name in source.namelist() for _ in range(20 if "data.pkl" in name else 1)])
        with zipfile.ZipFile(file, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
            for name in source.namelist():
                content = source.read(name)
                content = Grammar(rng, 5).mutated(content) if name == changed and content else content
                if rng.random() < 0.98:
                    archive.writestr(name, content)
        return file.getvalue()
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 3, 20])):
        place = rng.randrange(len(changed)) if rng.random() < 0.5 else rng.randrange(len(changed) - 300, len(changed))
        changed[place] = rng.choice([rng.randrange(256), 0, 255])
    return bytes(changed[: rng.randrange(len(changed))] if rng.random() < 0.1 else changed)


def zipped(data: bytes, rng: random.Random) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        archive.writestr("x/data.pkl", data)
        for key in ("s0", "s1", "s2"):
            archive.writestr(f"x/data/{key}", rng.randbytes(rng.choice([64, 64, 32, 128, 0])))
        if rng.random() < 0.1:
            archive.writestr("x/byteorder", rng.choice(["little", "big", "x" * 100]))
    return file.getvalue()


def legacy(data: bytes, rng: random.Random) -> bytes:
    keys = rng.choice([["s0"], ["s0", "s1"], ["s0", "s1", "s2"], [], ["s0", "s0"], ["x"]])
    content = b"".join(rng.choice([16, 16, 16, 4, 2**60]).to_bytes(8, "little") + rng.randbytes(64) for _ in keys)
    return MAGIC + data + pickle.dumps(keys, protocol=2) + content


def checkpoint(seed: int) -> bytes:
    """The file of this number."""
    rng = random.Random(seed)
    kind = rng.random()
    if kind < 0.3:
        return mutated_file(rng)
    is_zip = rng.random() < 0.6
    make: Callable[[], bytes] = (lambda: attack(rng)) if kind < 0.38 else Grammar(rng, 5 if is_zip else 6).pickle
    return (zipped if is_zip else legacy)(make(), rng)
