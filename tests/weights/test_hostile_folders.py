"""Hugging Face folders from strangers: each ends in a sentence, reads nothing outside, and takes no memory."""

import json
import os
import shutil
import struct
import time

import pytest
import torch
from safetensors.torch import load_file

from fairseq_poolingformer.cli import convert
from fairseq_poolingformer.huggingface import PoolingformerBartModel
from fairseq_poolingformer.weights import ConversionError
from fairseq_poolingformer.weights.card import write_card
from fairseq_poolingformer.weights.files import check_counts
from tests import lab
from tests.models import tiny_huggingface

NESTED = "[" * 200_000 + "]" * 200_000


@lab.once
def template(folder):
    tiny_huggingface.folder(folder, "bart")


def write(folder, config=None, content=None):
    """A small BART's folder with other settings, or with another content of ``pytorch_model.bin``."""
    shutil.copytree(template(), folder, dirs_exist_ok=True)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, **(config or {})}))
    if content is not None:
        content = content(load_file(folder / "model.safetensors"))
        if isinstance(content, bytes):
            (folder / "pytorch_model.bin").write_bytes(content)
        else:
            torch.save(content, folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()


def sentence(folder, capsys):
    capsys.readouterr()
    started = time.process_time()
    assert convert.main(["to-fairseq", str(folder), str(folder / "out")]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "Traceback" not in error
    assert time.process_time() - started < 5
    return error


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("encoder_layers", value) for value in ("x", [6], {"a": 1}, 10**7, -1, 2.5, True, "[(1, 2)]")),
        *(("d_model", value) for value in ("16", 2**40, [16], 1e300)),
        *(("decoder_layers", value) for value in (900, 10**400)),
        *(("encoder_ffn_dim", 2**22), ("vocab_size", 2**22), ("max_position_embeddings", 10**9)),
        *(("encoder_attention_heads", value) for value in (0, -1, 2.0**60)),
        *(("model_type", value) for value in ([], {}, "../x", 3)),
        *(("activation_function", "__import__('os')"), ("dropout", float("nan")), ("dropout", float("inf"))),
    ],
)
def test_settings(tmp_path, capsys, name, value):
    write(tmp_path, {name: value})
    assert "config" in sentence(tmp_path, capsys)


@pytest.mark.parametrize("make", ["from_short", "from_pretrained"])
@pytest.mark.parametrize("content", [None, dict])
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("num_labels", (10**8, 10**6, "x", 1e2, -1)),
        ("encoder_layers", (10**6, 900, "x", -1)),
        ("d_model", (2**22, 2**20, 0)),
        ("max_position_embeddings", (10**7, "x")),
    ],
)
def test_layers_labels_and_widths_that_transformers_would_build(tmp_path, make, content, name, values):
    write(tmp_path, content=content)
    state = load_file(template() / "model.safetensors")
    most = len(state) if name == "encoder_layers" else max(len(value) for value in state.values())
    settings = json.loads((tmp_path / "config.json").read_text())
    for value in (*values, most + 1):
        (tmp_path / "config.json").write_text(json.dumps({**settings, name: value}))
        with pytest.raises(ConversionError, match=rf"config.json has {name} {value!r}, (which is no size|and the w)"):
            getattr(PoolingformerBartModel, make)(tmp_path)
    check_counts({name: most}, tmp_path)


def test_rows_without_numbers_bound_no_labels(tmp_path):
    write(tmp_path, content=lambda state: {"a": torch.empty(10**7, 0)})
    with pytest.raises(ConversionError, match=r"config\.json has num_labels 1000000, and the weights"):
        check_counts({"num_labels": 10**6}, tmp_path)


EMBEDDING = "model.shared.weight"
TENSORS = {
    "sparse": lambda value: value.to_sparse(),
    "complex": lambda value: value.to(torch.complex64),
    "meta": lambda value: torch.empty(value.shape, device="meta"),
    "quantized": lambda value: torch.quantize_per_tensor(value, 0.1, 0, torch.qint8),
    "nested": lambda value: torch.nested.nested_tensor([value, value]),
    "list": lambda value: [value],
    "text": lambda value: "text",
}
CONTENTS = {
    **{name: lambda state, f=f: {**state, EMBEDDING: f(state[EMBEDDING])} for name, f in TENSORS.items()},
    "holds a list in place of a dictionary of parameters": lambda state: [1, 2],
    "holds a Tensor in place of a dictionary of parameters": lambda state: torch.ones(3),
    f"these entries are no tensors: {EMBEDDING}": lambda state: {EMBEDDING: "text"},
    "is not a checkpoint. It begins with b'a text": lambda state: b"a text that is no weights",
}


@pytest.mark.parametrize("name", CONTENTS)
def test_weights(tmp_path, capsys, name):
    write(tmp_path, content=CONTENTS[name])
    error = sentence(tmp_path, capsys)
    assert f"{tmp_path / 'pytorch_model.bin'}" in error
    assert name in error or name in TENSORS
    assert not (tmp_path / "out").exists()


def header(contents, data=b""):
    text = contents if isinstance(contents, bytes) else json.dumps(contents).encode()
    return struct.pack("<Q", len(text)) + text + data


CRAFTED = {
    "no header": b"\0" * 4,
    "a header of 2**60": struct.pack("<Q", 2**60) + b"{}",
    "a header beyond the end": struct.pack("<Q", 10**6) + b"{}",
    "nested": header(NESTED.encode()),
    "overlapping": header({n: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} for n in "ab"}, bytes(8)),
    "beyond the data": header({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}, bytes(8)),
    "another size": header({"a": {"dtype": "F32", "shape": [2**61, 8], "data_offsets": [0, 8]}}, bytes(8)),
    "negative": header({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [8, 0]}}, bytes(8)),
}


SETTINGS = (NESTED, '{"a": ' * 200_000, "[]", "3", '{"d_model": ' + "9" * 10_000 + "}", "\xff")
FILES = {  # None is a pipe
    **{f"settings {n}": ("config.json", text.encode("latin-1"), "config.json") for n, text in enumerate(SETTINGS)},
    **{name: ("model.safetensors", content, "model.safetensors") for name, content in CRAFTED.items()},
    "settings in a pipe": ("config.json", None, "is not a file"),
    "weights in a pipe": ("model.safetensors", None, "has neither model.safetensors nor"),
}


@pytest.mark.parametrize("case", FILES)
def test_files(tmp_path, capsys, case):
    name, content, message = FILES[case]
    write(tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name) if content is None else (tmp_path / name).write_bytes(content)
    assert message in sentence(tmp_path, capsys)


@pytest.mark.parametrize(
    "index",
    [
        *({"weight_map": {"a": shard}} for shard in ("../x.safetensors", "/etc/passwd", "pipe", "", ".", 3, None, [])),
        *({"weight_map": ["a"]}, {"weight_map": 3}, [], {}),
    ],
    ids=range(12),
)
def test_an_index_names_files_of_its_folder(tmp_path, capsys, index):
    folder = tmp_path / "folder"
    write(folder)
    (folder / "model.safetensors").rename(tmp_path / "x.safetensors")
    os.mkfifo(folder / "pipe")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "model.safetensors.index.json" in sentence(folder, capsys)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("tokenizer.json", text) for text in ("{}", '{"model": 3}', '{"model": {"type": "BPE"}}', NESTED)),
        ("tokenizer.json", '{"model": {"type": "Unigram", "vocab": 3}}'),
        ("tokenizer.json", '{"model": {"type": "BPE", "merges": [[1]], "vocab": {"a": []}}}'),
        *(("vocab.json", text) for text in ("[]", '{"a": "x"}', '{"a": 1e400}', "[[[]]]")),
    ],
)
def test_tokenizers(tmp_path, capsys, name, text):
    write(tmp_path)
    (tmp_path / "vocab.json").unlink()
    (tmp_path / name).write_text(text)
    sentence(tmp_path, capsys)


def test_a_card_that_is_a_link_is_not_copied(tmp_path):
    """A folder could otherwise have any file of the user's copied into a model that is then shared."""
    source, out, snapshot = (tmp_path / name for name in ("source", "out", "models--x/snapshots/1"))
    for folder in (source, out, snapshot, tmp_path / "models--x" / "blobs"):
        folder.mkdir(parents=True)
    (tmp_path / "private").write_text("mine")
    (source / "README.md").symlink_to(tmp_path / "private")
    write_card(out, "card", source)
    assert [path.name for path in out.iterdir()] == ["README.md"]
    (tmp_path / "models--x" / "blobs" / "0").write_text("theirs")
    (snapshot / "README.md").symlink_to("../../blobs/0")
    write_card(out, "card", snapshot)
    assert (out / "SOURCE_README.md").read_text() == "theirs"
