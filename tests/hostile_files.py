"""Files that pretend to be checkpoints: each would run code, crash the process, fill the memory or end in a traceback.

``HOSTILE`` has a writer for each, by name. Those that would run code make the file that the ``{marker}`` in them names.
"""

from __future__ import annotations

import builtins
import copy
import functools
import io
import operator
import os
import pickle
import subprocess
import zipfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf

from tests.checkpoint_reader.crafted import NUMPY
from tests.patches.untrusted_files.test_literals import EVALUATED

State = dict[str, Any]
Writer = Callable[[Path, State, Path], None]  # the file to write, the state of a good checkpoint, the marker

HOSTILE: dict[str, Writer] = {}


class Called:
    """An object whose unpickling calls something."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.reduced = (function, arguments)

    def __reduce__(self) -> tuple:
        return self.reduced


def changed(name: str) -> Callable:
    """Register a function that changes the state of a good checkpoint, given it and the marker."""

    def register(change: Callable[[State, Path], Any]) -> Callable:
        def write(path: Path, state: State, marker: Path) -> None:
            state = copy.deepcopy(state)
            other = change(state, marker)
            torch.save(state if other is None else other, path)

        HOSTILE[name] = write
        return change

    return register


def bytes_of(state: State, zipped: bool = True) -> bytes:
    file = io.BytesIO()
    torch.save(state, file, _use_new_zipfile_serialization=zipped)
    return file.getvalue()


CODE = "__import__('pathlib').Path({marker!r}).touch()"


def _with_code(arch: str, flag: str, arguments: dict, as_cfg: bool) -> Callable:
    def change(state: State, marker: Path) -> None:
        options = {"arch": arch, "data": state["args"].data, "left_pad_source": True, "left_pad_target": False}
        options |= {**arguments, flag: CODE.format(marker=str(marker))}
        if not as_cfg:
            state["args"] = Namespace(**options)
            return
        state["args"] = None
        state["cfg"] = {"model": {"_name": arch, **options}, "task": {"_name": options["task"], **options}}

    return change


for _name, (_arch, _flag, _arguments) in EVALUATED.items():
    for _as_cfg in (False, True):
        changed(f"code in {_name}, {'cfg' if _as_cfg else 'args'}")(_with_code(_arch, _flag, _arguments, _as_cfg))


def _option(**options: Any) -> Callable:
    def change(state: State, marker: Path) -> None:
        for name, value in options.items():
            text = value.format(marker=str(marker)) if isinstance(value, str) else value
            setattr(state["args"], name, text)

    return change


_OPTIONS: dict[str, dict[str, Any]] = {
    "code in adam_betas": {"optimizer": "adam", "adam_betas": CODE},
    "code in wer_args": {"criterion": "ctc", "wer_args": CODE, "zero_infinity": False},
    "code in lr": {"lr": CODE},
    "code in eval_rouge_args": {"eval_rouge": True, "eval_rouge_args": CODE},
    "code in softmax cutoff": {"adaptive_softmax_cutoff": CODE},
    "another model's file": {"arch": "transformer_from_pretrained_xlm", "pretrained_xlm_checkpoint": "{marker}"},
    "a model of several files": {"arch": "fconv_self_att_wp", "pretrained": "True", "pretrained_checkpoint": CODE},
    "a model of speech": {"arch": "wav2vec2", "conv_feature_layers": CODE},
    "another model of speech": {"arch": "hubert", "conv_feature_layers": CODE},
    "a task of speech": {"task": "audio_pretraining"},
    "no such model": {"arch": "../../x"},
    "no such task": {"task": "__import__"},
    "no such activation": {"activation_fn": "os.system"},
    "layers that are no number": {"encoder_layers": "x"},
    "a negative width": {"encoder_embed_dim": -8},
    "a width of text": {"encoder_embed_dim": "8"},
    "a width beyond memory": {"encoder_embed_dim": 2**40, "encoder_attention_heads": 2},
    "no heads": {"encoder_attention_heads": 0},
    "pooled layers that are no layers": {"pooled_layers": "__import__"},
    "a kernel of no size": {"pool_kernel_size": 0},
    "a list as an option": {"window_size": [["x"]]},
    "data of another type": {"data": 5},
    "an address as data": {"data": "\0"},
}
for _name, _options in _OPTIONS.items():
    changed(_name)(_option(**_options))


CALLS: dict[str, Callable[[str], Any]] = {
    "os.system": lambda marker: Called(os.system, f"touch {marker}"),
    "subprocess.Popen": lambda marker: Called(subprocess.Popen, ["touch", marker]),
    "eval": lambda marker: Called(builtins.eval, f"open({marker!r}, 'w')"),
    "exec": lambda marker: Called(builtins.exec, f"open({marker!r}, 'w')"),
    "open": lambda marker: Called(open, marker, "w"),
    "getattr": lambda marker: Called(builtins.getattr, marker, "upper"),
    "import": lambda marker: Called(builtins.__import__, "antigravity"),
    "functools.partial": lambda marker: functools.partial(os.system, f"touch {marker}"),
    "operator.methodcaller": lambda marker: operator.methodcaller("system", f"touch {marker}"),
    "torch.load": lambda marker: Called(torch.load, marker),
    "numpy.load": lambda marker: Called(np.load, marker),
    "Path.touch": lambda marker: Called(Path.touch, Path(marker)),
}
for _name, _call in CALLS.items():
    for _zipped in (True, False):

        def _write(path, state, marker, call=_call, zipped=_zipped):
            path.write_bytes(bytes_of({**state, "extra": call(str(marker))}, zipped))

        HOSTILE[f"{_name}, {'zip' if _zipped else 'legacy'}"] = _write

for _name, _value in NUMPY.items():
    changed(f"numpy: {_name}")(lambda state, marker, value=_value: state.update(best=value))


def _zip_bomb(record: str) -> Writer:
    def write(path: Path, state: State, marker: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            with archive.open(f"x/{record}", "w", force_zip64=True) as file:
                for _ in range(40):
                    file.write(bytes(2**20))
            archive.writestr("x/version", "3\n")

    return write


def _declared(path: Path, state: State, marker: Path) -> None:
    """2 GiB, of which nothing is there."""
    data = bytearray(bytes_of(state))
    place = data.index(b"PK\1\2")
    data[place + 24 : place + 28] = (2**31).to_bytes(4, "little")
    path.write_bytes(data)


def _overlapping(path: Path, state: State, marker: Path) -> None:
    """Many entries of the directory that are one and the same content."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data/0", bytes(2**21))
        (record,) = archive.filelist
        for number in range(1, 200):
            other = copy.copy(record)
            other.filename = f"x/data/{number}"
            archive.filelist.append(other)
            archive.NameToInfo[other.filename] = other


HOSTILE["bomb in data.pkl"] = _zip_bomb("data.pkl")
HOSTILE["bomb in a tensor"] = _zip_bomb("data/0")
HOSTILE["2 GiB declared"] = _declared
HOSTILE["overlapping entries"] = _overlapping


def _without(record: str) -> Writer:
    def write(path: Path, state: State, marker: Path) -> None:
        content = zipfile.ZipFile(io.BytesIO(bytes_of(state)))
        with zipfile.ZipFile(path, "w") as archive:
            for entry in content.infolist():
                if not entry.filename.endswith(record):
                    archive.writestr(entry, content.read(entry))

    return write


for _record in ("data.pkl", "data/0", "version"):
    HOSTILE[f"without {_record}"] = _without(_record)


def _with_pickle(make: Callable[[bytes], bytes]) -> Writer:
    def write(path: Path, state: State, marker: Path) -> None:
        content = zipfile.ZipFile(io.BytesIO(bytes_of(state)))
        with zipfile.ZipFile(path, "w") as archive:
            for entry in content.infolist():
                data = content.read(entry)
                archive.writestr(entry.filename, make(data) if entry.filename.endswith("data.pkl") else data)

    return write


def _pickled(value: Any) -> bytes:
    return pickle.dumps({"model": {}, "args": Namespace(), "x": value}, protocol=2)


HOSTILE["an empty pickle"] = _with_pickle(lambda data: b"")
HOSTILE["half a pickle"] = _with_pickle(lambda data: data[: len(data) // 2])
HOSTILE["a pickle of nonsense"] = _with_pickle(lambda data: b"\x80\x02" + bytes(range(40, 120)) + b".")
HOSTILE["a terabyte of bytes"] = _with_pickle(lambda data: _pickled(Called(bytearray, 2**46)))
HOSTILE["a deep list"] = _with_pickle(lambda data: b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".")
for _share in (0.001, 0.02, 0.3, 0.6, 0.9, 0.999):
    for _zipped in (True, False):

        def _cut(path, state, marker, share=_share, zipped=_zipped):
            data = bytes_of(state, zipped)
            path.write_bytes(data[: int(len(data) * share)])

        HOSTILE[f"cut to {_share:.1%}, {'zip' if _zipped else 'legacy'}"] = _cut
HOSTILE["empty"] = lambda path, state, marker: path.write_bytes(b"")
HOSTILE["text"] = lambda path, state, marker: path.write_bytes(b"no checkpoint\n" * 30)
HOSTILE["a web page"] = lambda path, state, marker: path.write_bytes(b"<!doctype html><html>")


def _entry(name: str, value: Any) -> Callable:
    return lambda state, marker: state.update({name: value})


def _parameter(make: Callable[[torch.Tensor], Any]) -> Callable:
    def change(state: State, marker: Path) -> None:
        name = next(name for name, value in state["model"].items() if value.dim() == 2)
        state["model"][name] = make(state["model"][name])

    return change


_ENDLESS: list = ["x"]
_ENDLESS.append(_ENDLESS)
_LAUGHS: list = ["ha"]
for _ in range(40):
    _LAUGHS = [_LAUGHS] * 2

for _name, _value in {
    "model: nothing": ("model", None),
    "model: a list": ("model", [1, 2]),
    "model: numbers by name": ("model", {"encoder.x": 3}),
    "model: names that are numbers": ("model", {3: torch.ones(1)}),
    "model: other parameters": ("model", {"x": torch.ones(2)}),
    "args: text": ("args", "x"),
    "args: empty": ("args", Namespace()),
    "args: endless": ("args", Namespace(arch=_ENDLESS)),
    "args: a billion laughs": ("args", Namespace(arch="x", data=_LAUGHS)),
    "optimizer history: text": ("optimizer_history", "x"),
    "optimizer history: numbers": ("optimizer_history", [1]),
    "optimizer history: empty": ("optimizer_history", []),
    "updates that are text": ("optimizer_history", [{"num_updates": "x"}]),
    "extra state: a list": ("extra_state", [1]),
    "extra state: empty": ("extra_state", {}),
    "an epoch of text": ("extra_state", {"train_iterator": {"epoch": "x", "iterations_in_epoch": "y"}}),
    "task state: a list": ("task_state", [1]),
    "optimizer state: text": ("last_optimizer_state", "x"),
    "optimizer state: another's": ("last_optimizer_state", {"state": {0: {"x": 1}}, "param_groups": [{"params": [0]}]}),
}.items():
    changed(_name)(_entry(*_value))
changed("cfg: a list")(lambda state, marker: state.update(args=None, cfg=[1]))
changed("cfg: text as model")(lambda state, marker: state.update(args=None, cfg={"model": "x", "task": "y"}))
changed("cfg: an interpolation of itself")(
    lambda state, marker: state.update(args=None, cfg={"model": "${model}", "task": {"_name": "${task._name}"}})
)
changed("cfg: an interpolation of itself, as omegaconf")(
    lambda state, marker: state.update(args=None, cfg=OmegaConf.create({"model": "${model}", "task": {"a": "${b}"}}))
)
changed("cfg: half an object of omegaconf")(
    lambda state, marker: state.update(args=None, cfg=Called(DictConfig.__new__, DictConfig))
)
changed("neither args nor cfg")(lambda state, marker: state.update(args=None, cfg=None))
changed("a list")(lambda state, marker: [1, 2, 3])
changed("a tensor")(lambda state, marker: torch.ones(3))
changed("a tensor of a terabyte")(_parameter(lambda value: torch.ones(1).expand(2**20, 2**20)))
changed("a sparse tensor")(_parameter(lambda value: value.to_sparse()))
changed("a tensor without memory")(_parameter(lambda value: torch.empty(value.shape, device="meta")))
changed("a quantized tensor")(_parameter(lambda value: torch.quantize_per_tensor(value, 0.1, 0, torch.qint8)))
changed("a tensor of integers")(_parameter(lambda value: value.long()))
changed("a tensor of complex numbers")(_parameter(lambda value: value.to(torch.complex64)))
changed("a tensor of another shape")(_parameter(lambda value: value[:1]))
changed("a tensor without dimensions")(_parameter(lambda value: value[0, 0].clone()))
