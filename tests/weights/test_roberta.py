"""RoBERTa's own part of the converter: longer positions, old checkpoints, a vocabulary without <mask>."""

import torch

from fairseq_poolingformer.weights import files
from fairseq_poolingformer.weights.convert import to_huggingface
from tests.models import tiny_huggingface
from tests.models.tiny_roberta import as_of_2019
from tests.weights.conftest import back_in_huggingface, converted, run
from tests.weights.encoders import ROWS, assert_agree, batch, load


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
    _, path = converted(tmp_path, "roberta")
    settings, state, _ = files.read_training(path)
    old = as_of_2019(state)
    assert "decoder.sentence_encoder.layers.0.self_attn.in_proj_weight" in old
    del old["decoder.sentence_encoder.version"], settings["layernorm_embedding"]
    files.write_checkpoint(path, settings, old)
    assert_agree(load(path), back_in_huggingface(path, "roberta").double(), batch())


def test_conversion_copies_only_what_shares_memory(tmp_path):
    settings, state, _ = files.read_training(converted(tmp_path, "roberta")[1])
    pointers = {value.data_ptr() for value in state.values()}
    output = to_huggingface(settings, state).state
    new = {name for name, value in output.items() if value.data_ptr() not in pointers}
    assert new == {"roberta.embeddings.token_type_embeddings.weight"}
    output = to_huggingface(settings, as_of_2019(state)).state
    assert len({value.untyped_storage().data_ptr() for value in output.values()}) == len(output)


def test_a_tokenizer_without_mask(tmp_path, capsys):
    source = tiny_huggingface.folder(tmp_path / "hf", "roberta", vocab_size=ROWS - 1)
    assert run("to-fairseq", source, tmp_path / "fairseq") == 1
    assert f"makes {ROWS} symbols with <mask>, the embedding has {ROWS - 1} rows" in capsys.readouterr().err
    assert not (tmp_path / "fairseq").exists()


def test_the_command_says_what_it_did_and_how_to_go_on(tmp_path, capsys):
    converted(tmp_path, "roberta", type_vocab_size=2)
    printed = capsys.readouterr().out
    for part in (
        *("added the embedding of token type 0", "left out the embeddings of token types 1 to 1"),
        *("--arch poolingformer_roberta_base", "--max-positions 4096"),
    ):
        assert part in printed
    assert not (tmp_path / "fairseq" / "dict.source.txt").exists()
