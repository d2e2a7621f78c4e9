"""Tiny random Hugging Face folders for the tests of the converter."""

import json
from pathlib import Path

import torch
import transformers

from fairseq_poolingformer.text.gpt2_bpe import byte_symbols
from fairseq_poolingformer.weights import gpt2_bpe

MERGES = ["Ġ t", "h e", "Ġt he", "i n", "Ã ©", "Ġ a", "e r", "in g"]
SPECIAL_TOKENS = ["<s>", "<pad>", "</s>", "<unk>"]
DEBERTA_TOKENS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
MODELS = {
    "bart": transformers.BartForConditionalGeneration,
    "mbart": transformers.MBartForConditionalGeneration,
    "led": transformers.LEDForConditionalGeneration,
    "roberta": transformers.RobertaForMaskedLM,
    "xlm-roberta": transformers.XLMRobertaForMaskedLM,
    "longformer": transformers.LongformerForMaskedLM,
    "deberta": transformers.DebertaForMaskedLM,
}
EAGER = {"attn_implementation": "eager"}
SEQ2SEQ = {"d_model": 24, "encoder_layers": 3, "encoder_ffn_dim": 40, "encoder_attention_heads": 4}
SEQ2SEQ |= {"decoder_layers": 2, "decoder_ffn_dim": 56, "decoder_attention_heads": 3}
BART = {**SEQ2SEQ, "max_position_embeddings": 40, **EAGER}
LED_POSITIONS = {"max_encoder_position_embeddings": 48, "max_decoder_position_embeddings": 20}
ENCODER = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40}
IDS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
ROBERTA = {**ENCODER, "max_position_embeddings": 48, "type_vocab_size": 1, "layer_norm_eps": 1e-5, **IDS, **EAGER}
# as published: relative positions in both products, no absolute ones
DEBERTA = {**ENCODER, "relative_attention": True, "pos_att_type": "c2p|p2c", "position_biased_input": False}
SIZES = {
    **{"bart": BART, "mbart": BART, "led": {**SEQ2SEQ, **EAGER, **LED_POSITIONS, "attention_window": [4, 8, 4]}},
    **{"roberta": ROBERTA, "xlm-roberta": ROBERTA},
    "longformer": {**ROBERTA, "attention_window": [4, 12, 6], "sep_token_id": 2},
    "deberta": {**DEBERTA, "max_position_embeddings": 46, "bos_token_id": 1, "eos_token_id": 2},
}


def vocabulary(special_tokens: list[str] = SPECIAL_TOKENS, mask: str = "<mask>") -> dict[str, int]:
    """Token -> row, in an order of its own: OpenAI's ids and the rows must not be mixed up."""
    bpe = [*byte_symbols(), *(merge.replace(" ", "") for merge in MERGES), "<|endoftext|>"]
    tokens = [*special_tokens, *sorted(bpe, reverse=True), "madeupword0000", mask]
    return {token: row for row, token in enumerate(tokens)}


def config(model_type: str, **changes):
    """A configuration whose sizes all differ, so that no two can be taken for each other."""
    return MODELS[model_type].config_class(**{"vocab_size": len(vocabulary()), **SIZES[model_type], **changes})


def model(model_type: str, cls=None, **changes):
    """A model, by default of the class in MODELS, whose every parameter is large enough to be missed in the outputs."""
    torch.manual_seed(1)
    network = (cls or MODELS[model_type])(config(model_type, **changes)).eval()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.add_(torch.randn_like(parameter) * (0.1 if "norm" in name.lower() else 0.2))
    return network


def folder(path: Path, model_type: str, cls=None, **changes) -> Path:
    """A folder as Hugging Face saves it, with the classic tokenizer files; arguments as :func:`model`."""
    model(model_type, cls, **changes).save_pretrained(path)
    tokens = vocabulary(DEBERTA_TOKENS, "[MASK]") if model_type == "deberta" else vocabulary()
    (path / "vocab.json").write_text(json.dumps(tokens), encoding="utf-8")
    (path / "merges.txt").write_text(gpt2_bpe.format_merges(MERGES), encoding="utf-8")
    return path


def batch(rows: int = 3, length: int = 22, target_length: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    """Source and shifted target ids, (rows, length) and (rows, target_length), with ragged padding at the right.

    None is <mask>, which a fine-tuned model has no row for.
    """
    torch.manual_seed(2)
    source = torch.randint(4, len(vocabulary()) - 1, (rows, length))
    source[:, 0] = 0
    for row, end in enumerate((length, 13, 6)[:rows]):
        source[row, end - 1] = 2
        source[row, end:] = 1
    target = torch.randint(4, len(vocabulary()) - 1, (rows, target_length))
    target[:, 0] = 2
    return source, target
