"""Parameters in the layout of a published code as a checkpoint of this plugin, whose model is then compared with it."""

import torch

from fairseq_poolingformer.char_lm.models import ARCHITECTURES, DEFAULTS
from fairseq_poolingformer.text.dictionary import EOS, FIRST_BYTE, NUM_SYMBOLS
from fairseq_poolingformer.weights import files
from preprocess.char_lm import make_folder

NEVER = -1e4  # bias of symbols that the published model lacks


def folder_of(tmp_path, text, held_out):
    (tmp_path / "text").write_bytes(text)
    make_folder([str(tmp_path / "text")], tmp_path / "data", held_out=held_out)
    return tmp_path / "data"


def embeddings(embedding, output, bias, order, before):
    """Both matrices and the bias, with a row for each symbol here; a text begins behind the symbol ``before``."""
    rows = torch.tensor([FIRST_BYTE + byte for byte in order])

    def placed(values, other):
        return values.new_full((NUM_SYMBOLS, *values.shape[1:]), other).index_copy(0, rows, values)

    inputs = placed(embedding, 0.0)
    inputs[EOS] = embedding[before]
    return {
        "decoder.embed_tokens.weight": inputs,
        "decoder.output_projection.weight": placed(output, 0.0),
        "decoder.output_projection.bias": placed(bias, NEVER),
    }


def renamed_layers(state, names, layers):
    return {
        f"decoder.layers.{layer}.{ours}": state[f"layers.{layer}.{theirs}"]
        for layer in range(layers)
        for theirs, ours in names.items()
    }


def write(path, data, arch, converted, layers, heads, **own):
    """Write ``converted`` as a checkpoint of an architecture with these sizes and settings."""
    settings = {
        **DEFAULTS,
        **ARCHITECTURES[arch],
        **{"arch": arch, "task": "char_lm", "criterion": "char_lm", "data": str(data)},
        "decoder_layers": layers,
        "decoder_embed_dim": converted["decoder.embed_tokens.weight"].size(1),
        "decoder_ffn_embed_dim": len(converted["decoder.layers.0.feed_forward.fc1.weight"]),
        "decoder_attention_heads": heads,
        **own,
    }
    files.write_checkpoint(path, settings, converted)
    return path
