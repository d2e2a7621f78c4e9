"""Marks by name: checkpoints from before a mark was added, and from tasks with another one."""

import copy
import logging
from types import SimpleNamespace

import pytest
import torch
from fairseq.data import Dictionary

from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.cli import predict
from fairseq_poolingformer.models import PoolingformerBART
from fairseq_poolingformer.patches.resuming import check
from fairseq_poolingformer.tasks.wikihop.task import WikihopTask
from fairseq_poolingformer.text.dictionary import MARKS
from fairseq_poolingformer.text.gpt2_bpe import GPT2_FILES
from fairseq_poolingformer.weights.convert import to_huggingface
from fairseq_poolingformer.weights.files import write_checkpoint
from fairseq_poolingformer.weights.special_tokens import (
    NAMES,
    decode_names,
    encode_names,
    match_special_tokens,
    rows_by_symbol,
)
from tests import lab
from tests.models import tiny_bart, tiny_roberta
from tests.patches.helpers import train_on_documents
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


WORDS, LARGE = [f"w{number}" for number in range(30)], [f"madeupword{number:04}" for number in range(3)]
RELEASED = {  # family -> symbols behind the words in the archive's dict.txt, and in the embedding
    "bart.base": (tiny_bart, [f"madeupword{number:04}" for number in range(9)], ["<mask>"]),
    "bart.large": (tiny_bart, LARGE, ["<mask>"]),
    "bart.large.cnn": (tiny_bart, LARGE, []),
    "roberta.base": (tiny_roberta, LARGE, ["<mask>"]),
    "xlmr.base": (tiny_roberta, [], ["<mask>"]),
}


def write_dictionary(folder, symbols):
    folder.mkdir()
    for name in ("dict.txt", "dict.source.txt", "dict.target.txt"):
        (folder / name).write_text("".join(f"{symbol} 1\n" for symbol in symbols))
    return folder


@pytest.fixture
def released(tmp_path, request):
    """An archive's folder, a data folder with the words in another order, and the model of the archive."""
    family, padding, mask = RELEASED[request.param]
    archive = write_dictionary(tmp_path / "archive", [*WORDS, *padding])
    data = write_dictionary(tmp_path / "data", [*reversed(WORDS), *LARGE[: len(padding)]])
    whole = write_dictionary(tmp_path / "whole", [*WORDS, *padding, *(mask if family is tiny_bart else [])])
    flags = [*family.SIZES, "--pooled-layers", "none"]
    _, model = family.build(whole, *flags, seed=7)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    if family is tiny_roberta:
        state = tiny_roberta.as_of_2019(state)
    write_checkpoint(archive / "model.pt", vars(family.parse(data, *flags)), state)
    return family, archive, data, model


def outputs(family, model, symbols):
    """Logits of a sentence, of the symbols that both dictionaries have."""
    dictionary = model.encoder.dictionary
    tokens = torch.tensor([[0, *map(dictionary.index, WORDS[3:12]), 2]])
    result = model(tokens, None, tokens)[0] if family is tiny_bart else model(tokens)[0]
    return result[..., [dictionary.index(symbol) for symbol in symbols]]


@pytest.mark.parametrize("released", RELEASED, indirect=True)
def test_rows_of_a_released_checkpoint_go_by_the_symbols_of_its_dictionary(released, caplog):
    family, archive, data, theirs = released
    task, model = family.build(data, *family.SIZES, "--pooled-layers", "none", seed=1)
    trainer = SimpleNamespace(task=task, get_model=lambda: model, cfg=None)
    state = load(archive / "model.pt") | {"cfg": None}
    with caplog.at_level(logging.INFO):
        check(str(archive / "model.pt"), state, trainer, anew=True)
    model.load_state_dict(state["model"], strict=True)
    symbols = [*WORDS, *(LARGE if "madeup" in (data / "dict.txt").read_text() else []), "<mask>"]
    symbols = symbols[:-1] if family is tiny_bart else symbols
    # rows in another order are added up in another order: up to twice the float32 error of the released model
    released_logits = outputs(family, theirs, symbols)
    exact = outputs(family, copy.deepcopy(theirs).double(), symbols)
    error = float((released_logits - exact).abs().max())
    assert float((outputs(family, model, symbols) - exact).abs().max()) <= 2 * error
    assert error < 1e-4
    assert ("lacks them: madeupword0003 to madeupword0008" in caplog.text) == (len(theirs.encoder.dictionary) == 44)


@pytest.mark.parametrize("released", ["bart.base"], indirect=True)
def test_training_and_the_hub_take_a_released_checkpoint(released, tmp_path):
    family, archive, data, theirs = released
    tiny_bart.write_data_folder(tmp_path / "new", 30, {"train": [([4, 5], [6])] * 4, "valid": [([4], [6])]})
    for name in ("dict.source.txt", "dict.target.txt"):
        (tmp_path / "new" / name).write_bytes((data / name).read_bytes())
    flags = ["--arch", "poolingformer_bart_tiny", *family.SIZES, "--pooled-layers", "none", "--lr", 0]
    flags += ["--decoder-embed-dim", 32, "--decoder-ffn-embed-dim", 48]
    start = ["--finetune-from-model", archive / "model.pt", "--max-update", 1]
    state = train_on_documents(tmp_path / "new", tmp_path / "run", *flags, *start)["model"]
    name = "encoder.embed_tokens.weight"
    dictionary, held = theirs.encoder.dictionary, Dictionary.load(str(data / "dict.txt"))
    rows = [dictionary.index(symbol) for symbol in held.symbols]
    assert torch.equal(state[name], theirs.state_dict()[name][rows])
    bpe = {"bpe": "gpt2", **{f"gpt2_{name.replace('.', '_')}": str(lab.gpt2() / name) for name in GPT2_FILES}}
    hub = PoolingformerBART.from_pretrained(str(archive), data_name_or_path=str(data), **bpe)
    assert torch.equal(hub.model.state_dict()[name], state[name])


@pytest.mark.parametrize("released", ["bart.base", "roberta.base"], indirect=True)
def test_a_dictionary_of_other_words_is_refused_by_its_first(released):
    family, archive, data, _ = released
    _, model = family.build(data, *family.SIZES, "--pooled-layers", "none", seed=1)
    state = load(archive / "model.pt")
    before = {name: value.clone() for name, value in state["model"].items()}
    file = archive / "dict.txt"
    text = file.read_text()
    file.write_text(text.replace("w7 1", "other 1"))
    with pytest.raises(ValueError, match=r"the data folder's dictionary has 'w7', which \S+dict.txt lacks \(1 such"):
        model.take_rows(str(archive / "model.pt"), state)
    held = model.encoder.dictionary
    symbols = [symbol for symbol in held.symbols if symbol != "w7"]
    file.write_text(text)
    with pytest.raises(ValueError, match=r"dict.txt has 'w7', which the data folder's dictionary lacks"):
        rows_by_symbol(archive / "model.pt", state, symbols)
    for other in ("one 1\n", None):  # another model's dictionary, or none: the model compares the sizes
        file.write_text(other) if other else file.unlink()
        model.take_rows(str(archive / "model.pt"), state)
        torch.testing.assert_close(state["model"], before, rtol=0, atol=0)
    if family is tiny_bart:
        with pytest.raises(ValueError, match=r"put the dict\.txt of the archive beside"):
            model.load_state_dict(state["model"], strict=True)
