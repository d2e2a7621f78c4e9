"""Marks by name: checkpoints from before a mark was added, and from tasks with another one."""

import logging

import pytest
import torch

from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.cli import predict
from fairseq_poolingformer.tasks.wikihop.task import WikihopTask
from fairseq_poolingformer.text.dictionary import MARKS
from fairseq_poolingformer.weights.convert import to_huggingface
from fairseq_poolingformer.weights.files import write_checkpoint
from fairseq_poolingformer.weights.special_tokens import NAMES, decode_names, encode_names, match_special_tokens
from tests.tasks.folders import random_wikihop, write_wikihop
from tests.tasks.test_document_tasks import ENCODERS, make

EMBEDDING = "encoder.sentence_encoder.embed_tokens.weight"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_wikihop(tmp_path_factory.mktemp("wikihop"), {"valid": random_wikihop(4, seed=3)})


def logits(task, model):
    task.load_dataset("valid")
    batch = task.dataset("valid").collater([task.dataset("valid")[k] for k in range(4)])
    with torch.inference_mode():
        return model.eval()(**batch["net_input"])[0]


def named(*marks):
    return {"a.embed_tokens.weight": torch.arange(4.0 + len(marks)).unsqueeze(1), NAMES: encode_names(marks)}


def test_rows_go_by_name_and_the_log_says_which_are_new(caplog):
    state_of_model, state = named("[x]", "[z]", "[y]"), named("[y]", "[x]", "[w]")
    state["a.embed_tokens.weight"] = state["a.embed_tokens.weight"] + 100
    with caplog.at_level(logging.INFO):
        match_special_tokens(state_of_model, state)
    assert state["a.embed_tokens.weight"].flatten().tolist() == [100, 101, 102, 103, 105, 5, 104]
    assert decode_names(state[NAMES]) == ("[x]", "[z]", "[y]")
    assert "newly initialized: the embeddings of [z]" in caplog.text
    assert "left out, since this task has no such tokens: [w]" in caplog.text


def test_sizes_that_marks_do_not_explain_stay_for_the_model_to_refuse():
    state_of_model, state = named("[x]"), named("[x]", "[y]")
    state["a.embed_tokens.weight"] = state["a.embed_tokens.weight"][:-1]
    match_special_tokens(state_of_model, state)
    assert (len(state["a.embed_tokens.weight"]), decode_names(state[NAMES])) == (5, ("[x]",))


@pytest.mark.parametrize("before", [False, True])
def test_a_checkpoint_from_before_a_mark_gives_the_same_logits(folder, tmp_path, monkeypatch, before):
    """In training, in prediction and converted; ``before``: the new mark stands before the others."""
    args, task, model = make(folder, "wikihop", *ENCODERS[0])
    state = {name: value.clone() for name, value in model.state_dict().items()}
    expected, path = logits(task, model), tmp_path / "model.pt"
    write_checkpoint(path, vars(args), state)
    flags = ["--path", str(path), "--device", "cpu", "--num-workers", "0", "--output"]
    predict.main([str(folder), *flags, str(tmp_path / "old.json")])

    monkeypatch.setattr(WikihopTask, "marks", ("[new]", *MARKS) if before else (*MARKS, "[new]"))
    _, newer, later = make(folder, "wikihop", *ENCODERS[0])
    later.load_state_dict(dict(state), strict=True)
    assert len(later.state_dict()[EMBEDDING]) == len(state[EMBEDDING]) + 1
    assert torch.equal(logits(newer, later), expected)
    predict.main([str(folder), *flags, str(tmp_path / "new.json")])
    assert (tmp_path / "new.json").read_bytes() == (tmp_path / "old.json").read_bytes()
    weights = load(path)["model"]
    converted = to_huggingface(vars(args), weights, drop_heads=True, model_type="longformer")
    assert not any(NAMES in name for name in converted.state)
    embedding = converted.state["longformer.embeddings.word_embeddings.weight"]
    assert torch.equal(embedding, weights[EMBEDDING][: -len(MARKS)])
    assert any("left out the embeddings of the task's special tokens: [q], " in note for note in converted.notes)


def test_a_mark_that_the_task_lacks_is_left_out_in_words(folder, monkeypatch, caplog):
    with monkeypatch.context() as patched:
        patched.setattr(WikihopTask, "marks", (*MARKS, "[new]"))
        _, _, newer = make(folder, "wikihop", *ENCODERS[0])
    _, _, older = make(folder, "wikihop", *ENCODERS[0])
    with caplog.at_level(logging.INFO):
        older.load_state_dict(newer.state_dict(), strict=True)
    assert "left out, since this task has no such tokens: [new]" in caplog.text
    assert torch.equal(older.state_dict()[EMBEDDING], newer.state_dict()[EMBEDDING][:-1])
    unnamed = {name: value for name, value in newer.state_dict().items() if name != NAMES}
    with pytest.raises(ValueError, match="dictionary must be the checkpoint's own"):
        older.load_state_dict(unnamed, strict=True)
