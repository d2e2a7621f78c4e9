"""Configurations of checkpoints: literals are read, code is not run, and only text models are built."""

import contextlib
import re
import sys
from argparse import Namespace
from pathlib import Path

import fairseq
import pytest
import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import Dictionary

from fairseq_poolingformer.checkpoint_reader.option_schema import ConfigurationError
from fairseq_poolingformer.patches import CheckpointError, table
from fairseq_poolingformer.patches.untrusted_files import checkpoints
from fairseq_poolingformer.patches.untrusted_files.literals import LARGEST, literal
from fairseq_poolingformer.patches.untrusted_files.own_options import check_configuration

table.apply()


@pytest.mark.parametrize(
    "text",
    ["[(512, 3)] * 20", "[(512, 10, 5)] + [(512, 3, 2)] * 4", "3 * [1]", "(0.9, 0.98)", "True", "-1e-3", " 'a' "],
)
def test_literals_are_what_python_evaluates(text):
    assert literal(text) == eval(text.strip())


def test_values_that_are_no_text_are_returned():
    assert literal([0.5]) == [0.5]


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "[].__class__",
        "[x for x in ()]",
        "2 ** 99",
        "lambda: 0",
        "open",
        "f'{1}'",
        "",
        "[0] * 10 * 1000000",
        "'a' * 1000000",
        "1, " * LARGEST,
        "(" * 5000,
        "[1] + 2",
        "\0",
    ],
)
def test_everything_else_is_refused(text):
    with pytest.raises(ConfigurationError, match=r"not a number, text, list or tuple"):
        literal(text)


def test_fairseq_evaluates_literals_only():
    assert utils.eval_str_list("[1, 2] * 2", type=int) == [1, 2, 1, 2]
    with pytest.raises(ConfigurationError):
        utils.eval_str_list("print('run')")


def test_every_eval_of_fairseq_is_replaced():
    """A fairseq with an eval in another module must be looked at: its module may be loaded only later."""
    folder = Path(fairseq.__file__).parent
    found = []
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).with_suffix("").parts
        if parts[0] != "examples" and re.search(r"(?<![.\w])(eval|exec)\(", path.read_text(encoding="utf-8")):
            found.append(".".join(("fairseq", *parts)))
    assert len(found) > 10
    assert [name for name in found if vars(sys.modules[name]).get("eval") is not literal] == []


CODE = "__import__('pathlib').Path({marker!r}).touch()"
LANGUAGE_MODEL = {"task": "language_modeling", "sample_break_mode": "none", "tokens_per_sample": 8}
LANGUAGE_MODEL |= {"criterion": "cross_entropy"}
TRANSLATION = {"task": "translation", "source_lang": "a", "target_lang": "b"}
TRANSLATION |= {"max_source_positions": 8, "max_target_positions": 8}
# architecture, the string that fairseq evaluates, and further arguments
EVALUATED = {
    "fconv encoder": ("fconv", "encoder_layers", TRANSLATION),
    "fconv decoder": ("fconv", "decoder_layers", TRANSLATION),
    "fconv attention": ("fconv", "decoder_attention", TRANSLATION),
    "fconv_lm": ("fconv_lm", "decoder_layers", LANGUAGE_MODEL),
    "characters": ("transformer_lm", "character_filters", LANGUAGE_MODEL | {"character_embeddings": True}),
    "lightconv_lm": ("lightconv_lm", "character_filters", LANGUAGE_MODEL | {"character_embeddings": True}),
    "softmax": ("transformer", "adaptive_softmax_cutoff", TRANSLATION),
}


@pytest.fixture
def folder(tmp_path):
    dictionary = Dictionary()
    dictionary.add_symbol("x")
    for name in ("dict.txt", "dict.a.txt", "dict.b.txt"):
        dictionary.save(str(tmp_path / name))
    return tmp_path


def save(folder, **arguments):
    arguments = Namespace(data=str(folder), left_pad_source=True, left_pad_target=False, **arguments)
    history = [{"num_updates": 1, "optimizer_name": "Adam", "lr_scheduler_state": {}}]
    extra = {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}}
    state = {"args": arguments, "model": {}, "optimizer_history": history, "extra_state": extra}
    torch.save(state, folder / "x.pt")
    return str(folder / "x.pt")


@pytest.mark.parametrize("name", EVALUATED)
@pytest.mark.parametrize("defence", ["schema", "literal", None])
def test_code_in_a_configuration_is_not_run(name, defence, folder, monkeypatch):
    arch, flag, arguments = EVALUATED[name]
    marker = folder / "run"
    path = save(folder, arch=arch, **arguments, **{flag: CODE.format(marker=str(marker))})
    if defence != "schema":
        monkeypatch.setattr(checkpoints, "restricted", lambda state, path: state)
        monkeypatch.setattr(checkpoints, "Building", contextlib.nullcontext)
    if defence is None:  # the attack is one: fairseq alone runs the code, and then fails for its value
        for module in list(sys.modules.values()):
            if getattr(module, "__dict__", {}).get("eval") is literal:
                monkeypatch.setattr(module, "eval", eval)
    with pytest.raises(
        CheckpointError, match={"schema": "must be a plain", "literal": "not a number, text"}.get(defence)
    ):
        checkpoint_utils.load_model_ensemble_and_task([path])
    assert marker.exists() == (defence is None)


@pytest.mark.parametrize(
    ("arch", "task"),
    [("wav2vec2", "translation"), ("transformer", "audio_pretraining"), ("hubert", "hubert_pretraining")],
)
def test_models_and_tasks_beyond_text_are_refused(arch, task, folder):
    path = save(folder, arch=arch, task=task)
    with pytest.raises(CheckpointError, match=r"x\.pt cannot be used: its (model|task|criterion) is '"):
        checkpoint_utils.load_model_ensemble_and_task([path])


@pytest.mark.parametrize("as_cfg", [True, False])
def test_criterions_beyond_text_are_refused(as_cfg):
    state = {"cfg": {"criterion": {"_name": "ctc"}}} if as_cfg else {"args": Namespace(criterion="ctc")}
    with pytest.raises(ConfigurationError, match="its criterion is 'ctc'"):
        check_configuration(state)
    check_configuration({"args": Namespace(criterion="label_smoothed_cross_entropy")})


def test_the_models_of_every_task_of_the_list_may_be_named():
    for name in ("multilingual_transformer", "multilingual_transformer_iwslt_de_en"):
        check_configuration({"args": Namespace(arch=name, task="multilingual_translation")})
