"""RoBERTa, XLM-R and Longformer through the converter, against Hugging Face's own models."""

import pytest
import torch
from fairseq import checkpoint_utils, options
from safetensors.torch import load_file, save_file
from transformers import (
    LongformerForMultipleChoice,
    LongformerModel,
    RobertaForMultipleChoice,
    RobertaModel,
)

from fairseq_poolingformer.weights import files
from fairseq_poolingformer.weights.convert import to_huggingface
from tests.models import tiny_huggingface, tiny_roberta
from tests.models.test_roberta import as_of_2019
from tests.weights.conftest import run

ROWS = len(tiny_huggingface.vocabulary())
LENGTHS = (22, 13, 6)


def load(path, **overrides):
    """The model as every command line of fairseq loads it, in double precision."""
    overrides["data"] = str(path.parent)
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], arg_overrides=overrides)
    assert len(task.source_dictionary) == ROWS
    return models[0].eval().double()


def batch(lengths=LENGTHS):
    """(B, T) random ids with ragged padding."""
    generator = torch.Generator().manual_seed(4)
    tokens = torch.full((len(lengths), max(lengths)), 1)
    for row, length in zip(tokens, lengths, strict=True):
        row[:length] = torch.randint(4, ROWS, (length,), generator=generator)
        row[0], row[length - 1] = 0, 2
    return tokens


def globals_at(tokens, *positions):
    """(B, T) bool, True at one list of positions a row."""
    mask = torch.zeros_like(tokens, dtype=torch.bool)
    for row, at in zip(mask, positions, strict=True):
        row[list(at)] = True
    return mask


@torch.no_grad()
def assert_agree(ours, theirs, tokens, global_mask=None):
    """Features and logits of real tokens to 1e-5, of outputs that are not all alike."""
    theirs = theirs.double()
    real = tokens.ne(1)
    inputs = {"input_ids": tokens, "attention_mask": real.long()}
    if global_mask is not None:
        inputs["global_attention_mask"] = global_mask.long()
    features, logits = theirs.base_model(**inputs).last_hidden_state, theirs(**inputs).logits
    assert logits.std() > 0.3
    masks = {} if global_mask is None else {"global_mask": global_mask}
    torch.testing.assert_close(ours(tokens, features_only=True, **masks)[0][real], features[real], rtol=0, atol=1e-5)
    torch.testing.assert_close(ours(tokens, **masks)[0][real], logits[real], rtol=0, atol=1e-5)


def test_roberta_has_the_outputs_of_hugging_face(tmp_path, capsys):
    source = tiny_huggingface.folder(tmp_path / "hf", "roberta")
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    printed = capsys.readouterr().out
    assert "token type 0" in printed
    assert "--arch poolingformer_roberta_base" in printed
    assert "--max-positions 4096" in printed
    assert not (tmp_path / "fairseq" / "dict.source.txt").exists()
    theirs = tiny_huggingface.model("roberta")
    assert theirs.roberta.embeddings.token_type_embeddings.weight.any()
    model = load(tmp_path / "fairseq" / "model.pt")
    assert type(model).__module__ == "fairseq.models.roberta.model"
    assert_agree(model, theirs, batch())
    assert_agree(model, theirs, batch((46, 1, 31)))


def test_roberta_is_poolingformer_with_a_window_as_wide_as_the_sequence(tmp_path):
    source = tiny_huggingface.folder(tmp_path / "hf", "roberta")
    assert run("to-fairseq", source, tmp_path / "fairseq", "--arch", "poolingformer_roberta_base") == 0
    full = {"window_size": "21,30,64", "pooled_layers": "none"}  # of 22 tokens, the last is 21 from the first
    model = load(tmp_path / "fairseq" / "model.pt", **full)
    assert_agree(model, tiny_huggingface.model("roberta"), batch())


def test_a_longer_poolingformer_repeats_the_positions(tmp_path):
    source = tiny_huggingface.folder(tmp_path / "hf", "roberta", max_position_embeddings=22)
    assert run("to-fairseq", source, tmp_path / "fairseq", "--arch", "poolingformer_roberta_base") == 0
    full = {"window_size": "64", "pooled_layers": "none", "max_positions": 50}
    model = load(tmp_path / "fairseq" / "model.pt", **full)
    theirs = tiny_huggingface.model("roberta", max_position_embeddings=22)
    assert_agree(model, theirs, batch((20, 13, 6)))
    table = theirs.roberta.embeddings.position_embeddings.weight.data
    positions = torch.cat([table[:2], table[2:].repeat(3, 1)])[:52]
    longer = tiny_huggingface.model("roberta", max_position_embeddings=52)
    state = {**theirs.float().state_dict(), "roberta.embeddings.position_embeddings.weight": positions.float()}
    longer.load_state_dict(state)
    assert_agree(model, longer, batch((50, 33, 21)))


@pytest.mark.parametrize("lengths", [LENGTHS, (29, 3, 17), (46, 46, 46)])  # windows of 4, 12 and 6 tokens
def test_longformer_has_the_outputs_of_hugging_face(tmp_path, lengths):
    source = tiny_huggingface.folder(tmp_path / "hf", "longformer")
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    model = load(tmp_path / "fairseq" / "model.pt")
    windows = [layer.self_attn.window.left for layer in model.encoder.sentence_encoder.layers]
    assert windows == [2, 6, 3]
    theirs = tiny_huggingface.model("longformer")
    tokens = batch(lengths)
    assert_agree(model, theirs, tokens, globals_at(tokens, [0], [0], [0]))
    assert_agree(model, theirs, tokens, globals_at(tokens, [0, 1, 2, 15, 21], [2], [0, 1, 4]))
    assert_agree(model, theirs, tokens, globals_at(tokens, [7], [], [0, 5]))
    assert_agree(model, theirs, tokens, globals_at(tokens, [], [], []))


@pytest.mark.parametrize("model_type", ["roberta", "longformer"])
def test_round_trip_is_bit_identical(tmp_path, model_type):
    source = tiny_huggingface.folder(tmp_path / "hf", model_type)
    whole = load_file(source / "model.safetensors")
    types = next(name for name in whole if "token_type" in name)
    save_file({**whole, types: torch.zeros_like(whole[types])}, source / "model.safetensors", {"format": "pt"})
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    assert run("to-huggingface", tmp_path / "fairseq" / "model.pt", tmp_path / "back") == 0
    cls = tiny_huggingface.MODELS[model_type]
    before = cls.from_pretrained(source)
    after, info = cls.from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(info.values())
    same = before.state_dict()
    assert same.keys() == after.state_dict().keys()
    assert all(torch.equal(same[name], tensor) for name, tensor in after.state_dict().items())
    different = {k for k, v in after.config.to_dict().items() if before.config.to_dict().get(k) != v}
    assert different <= {"_name_or_path"}

    assert run("to-fairseq", tmp_path / "back", tmp_path / "again") == 0
    first, second = (files.read_training(tmp_path / name / "model.pt") for name in ("fairseq", "again"))
    assert {**first[0], "data": None} == {**second[0], "data": None}
    assert first[1].keys() == second[1].keys()
    assert all(torch.equal(first[1][name], second[1][name]) for name in first[1])
    for name in ("dict.txt", "flags.txt", "tokenizer/encoder.json", "tokenizer/vocab.bpe"):
        assert (tmp_path / "fairseq" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_token_types_that_are_left_out(tmp_path, capsys):
    source = tiny_huggingface.folder(tmp_path / "hf", "roberta", type_vocab_size=2)
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    assert "left out the embeddings of token types 1 to 1" in capsys.readouterr().out
    assert_agree(load(tmp_path / "fairseq" / "model.pt"), tiny_huggingface.model("roberta", type_vocab_size=2), batch())


@pytest.mark.parametrize(
    ("model_type", "cls"),
    [
        ("roberta", RobertaModel),
        ("roberta", RobertaForMultipleChoice),
        ("longformer", LongformerModel),
        ("longformer", LongformerForMultipleChoice),
    ],
)
def test_models_with_another_head_or_none(tmp_path, capsys, model_type, cls):
    source = tiny_huggingface.folder(tmp_path / "hf", model_type, cls)
    if cls in (RobertaModel, LongformerModel):
        assert run("to-fairseq", source, tmp_path / "fairseq") == 0
        printed = capsys.readouterr().out
        assert "left out the pooler" in printed
    else:
        assert run("to-fairseq", source, tmp_path / "fairseq") == 1
        assert "--drop-heads" in capsys.readouterr().err
        assert run("to-fairseq", source, tmp_path / "fairseq", "--drop-heads") == 0
        printed = capsys.readouterr().out
    assert "a random one is filled in" in printed
    model = load(tmp_path / "fairseq" / "model.pt")
    theirs = tiny_huggingface.model(model_type, cls).double()
    tokens = batch()
    extra = {"global_attention_mask": globals_at(tokens, [0], [0], [0]).long()} if model_type == "longformer" else {}
    with torch.no_grad():
        expected = theirs.base_model(input_ids=tokens, attention_mask=tokens.ne(1).long(), **extra).last_hidden_state
        actual, _ = model(tokens, features_only=True)
        logits, _ = model(tokens)
    torch.testing.assert_close(actual[tokens.ne(1)], expected[tokens.ne(1)], rtol=0, atol=1e-5)
    assert logits.isfinite().all()


def test_weights_of_older_versions(tmp_path):
    """A .bin with the tied parameters under all names, the pooler and the buffer of position ids."""
    source = tiny_huggingface.folder(tmp_path / "hf", "roberta")
    state = {
        **tiny_huggingface.model("roberta").state_dict(),
        "roberta.embeddings.position_ids": torch.arange(48)[None],
        "roberta.pooler.dense.weight": torch.ones(24, 24),
        "roberta.pooler.dense.bias": torch.ones(24),
    }
    assert "lm_head.decoder.bias" in state
    for name in [name for name in state if "LayerNorm." in name]:  # as weights that began in TensorFlow have them
        state[name.replace(".weight", ".gamma").replace(".bias", ".beta")] = state.pop(name)
    (source / "model.safetensors").unlink()
    torch.save(state, source / "pytorch_model.bin")
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    assert_agree(load(tmp_path / "fairseq" / "model.pt"), tiny_huggingface.model("roberta"), batch())


def test_a_checkpoint_of_2019(tmp_path):
    """fairseq's published ``roberta.*``: other names, and query, key and value in one matrix."""
    source = tiny_huggingface.folder(tmp_path / "hf", "roberta")
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    path = tmp_path / "fairseq" / "model.pt"
    settings, state, _ = files.read_training(path)
    old = as_of_2019(state)
    assert "decoder.sentence_encoder.layers.0.self_attn.in_proj_weight" in old
    del old["decoder.sentence_encoder.version"]
    del settings["layernorm_embedding"]
    files.write_checkpoint(path, settings, old)
    assert run("to-huggingface", path, tmp_path / "back") == 0
    back = tiny_huggingface.MODELS["roberta"].from_pretrained(tmp_path / "back").eval()
    back.double()
    assert_agree(load(path), back, batch())


def test_conversion_copies_only_what_shares_memory(tmp_path):
    source = tiny_huggingface.folder(tmp_path / "hf", "roberta")
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    settings, state, _ = files.read_training(tmp_path / "fairseq" / "model.pt")
    given = {value.data_ptr() for value in state.values()}
    found = to_huggingface(settings, state).state
    own = {name for name, value in found.items() if value.data_ptr() not in given}
    assert own == {"roberta.embeddings.token_type_embeddings.weight"}
    found = to_huggingface(settings, as_of_2019(state)).state
    assert len({value.untyped_storage().data_ptr() for value in found.values()}) == len(found)


def poolingformer(tmp_path, **settings):
    """A Poolingformer with random level two and heads made from a tiny RoBERTa: its checkpoint and the model."""
    source = tiny_huggingface.folder(tmp_path / "hf", "roberta")
    assert run("to-fairseq", source, tmp_path / "fairseq", "--arch", "poolingformer_roberta_base") == 0
    path = tmp_path / "fairseq" / "model.pt"
    model = load(path, **settings).float()
    stored, *_ = files.read_training(path)
    return path, {**stored, **settings}, model


def test_poolingformer_without_level_two_is_a_longformer(tmp_path, capsys):
    path, settings, model = poolingformer(tmp_path, window_size="3,9,3", pooled_layers="none", global_tokens=2)
    files.write_checkpoint(path, settings, model.state_dict())
    assert run("to-huggingface", path, tmp_path / "back") == 0
    printed = capsys.readouterr().out
    assert "filled in as copies" in printed
    assert "global_tokens is 2" in printed
    back = tiny_huggingface.MODELS["longformer"].from_pretrained(tmp_path / "back").eval()
    assert back.config.attention_window == [6, 18, 6]
    tokens = batch()
    padded = torch.nn.functional.pad(tokens, (0, 36 - tokens.size(1)), value=1)  # a multiple of the largest window
    model.double()
    with torch.no_grad():
        global_mask = globals_at(padded, [0, 1], [0, 1], [0, 1])
        expected = back.double()(padded, padded.ne(1).long(), global_mask.long()).logits
        actual, _ = model(tokens)
    real = tokens.ne(1)
    torch.testing.assert_close(actual[real], expected[:, : tokens.size(1)][real], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("model_type", "arch"),
    [
        ("roberta", "roberta_base"),
        ("roberta", "poolingformer_roberta_large"),
        ("longformer", "longformer_roberta_large"),
        ("longformer", "poolingformer_roberta_tiny"),
    ],
)
def test_flags_build_the_model_of_the_checkpoint(tmp_path, model_type, arch):
    source = tiny_huggingface.folder(tmp_path / "hf", model_type, hidden_dropout_prob=0.2)
    assert run("to-fairseq", source, tmp_path / "fairseq", "--arch", arch) == 0
    settings, *_ = files.read_training(tmp_path / "fairseq" / "model.pt")
    flags = (tmp_path / "fairseq" / "flags.txt").read_text().split()
    assert "--task" not in flags
    parsed = vars(options.parse_args_and_arch(options.get_training_parser(), [str(tmp_path), *flags]))
    del settings["task"], settings["data"]
    assert {key: parsed[key] for key in settings} == settings


def test_a_trained_checkpoint(tmp_path):
    """Training writes "cfg" in place of "args", with every setting of the model and the task."""
    source = tiny_huggingface.folder(tmp_path / "hf", "longformer")
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    _, state, _ = files.read_training(tmp_path / "fairseq" / "model.pt")
    flags = (tmp_path / "fairseq" / "flags.txt").read_text().split()
    arch = flags[flags.index("--arch") + 1]
    args = tiny_roberta.parse(tmp_path / "fairseq", *flags, arch=arch)
    (tmp_path / "runs").mkdir()
    trained = tmp_path / "runs" / "checkpoint_best.pt"
    torch.save({"args": None, "cfg": {"model": args}, "model": state}, trained)
    assert run("to-huggingface", trained, tmp_path / "back") == 0
    back = tiny_huggingface.MODELS["longformer"].from_pretrained(tmp_path / "back").eval()
    tokens = batch()
    mask = globals_at(tokens, [0, 3], [0], [0, 1])
    assert_agree(load(tmp_path / "fairseq" / "model.pt"), back, tokens, mask)
