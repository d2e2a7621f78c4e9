"""The usual tools around transformers: Trainer, accelerate, PEFT, sampling, torch.compile, torch.export."""

import inspect
import io

import pytest
import torch
from torch import nn

import fairseq_poolingformer.huggingface
from fairseq_poolingformer.huggingface import (
    PoolingformerBartForConditionalGeneration,
    PoolingformerRobertaConfig,
    PoolingformerRobertaModel,
)
from tests.huggingface.tiny_models import LEVELS
from tests.models import tiny_huggingface
from tests.weights.encoders import batch


def bart(**settings):
    settings = {**LEVELS, "max_position_embeddings": 200, **settings}
    return PoolingformerBartForConditionalGeneration.from_short(tiny_huggingface.model("bart"), **settings)


def test_the_encoder_reads_a_long_document_once_for_all_beams():
    """The keys of cross-attention are computed once for each beam, not at every step, and are one tensor a layer."""
    model, calls = bart(max_position_embeddings=2000), []
    model.model.encoder.register_forward_hook(lambda module, inputs, output: calls.append(output[0].shape))
    projected = []
    model.model.decoder.layers[0].encoder_attn.k_proj.register_forward_hook(
        lambda module, inputs, output: projected.append(inputs[0].shape)
    )
    source = torch.randint(4, 260, (1, 1900), generator=torch.Generator().manual_seed(0))
    model.generate(source, num_beams=5, max_length=10, min_length=10)
    assert calls == [(1, 1900, 24)]
    assert len(projected) == 1


def assert_same(run, model, lengths):
    for length in lengths:
        tokens = batch((length, max(1, length // 2)))
        mask = tokens.ne(1).long()
        with torch.no_grad():
            expected = model(input_ids=tokens, attention_mask=mask).last_hidden_state
        torch.testing.assert_close(run(tokens, mask)[mask.bool()], expected[mask.bool()], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in fairseq_poolingformer.huggingface.__all__ if "For" in name])
def test_trainer_sees_every_input_in_the_signatures(name):
    """It drops the columns of a data set that ``forward`` does not name."""
    named = set(inspect.signature(getattr(fairseq_poolingformer.huggingface, name).forward).parameters)
    labels = {"start_positions", "end_positions"} if name.endswith("QuestionAnswering") else {"labels"}
    assert {"input_ids", "attention_mask", "global_attention_mask", *labels} <= named


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("library", ["torch.ao", "torchao"])
@torch.no_grad()
def test_int8_linears(library):
    """RoBERTa-base's width, weights from N(0, 0.02²); what torch.save kept gives the same vectors."""
    quantization = pytest.importorskip(f"{library}.quantization")

    def made(quantize):
        torch.manual_seed(0)
        sizes = {"num_hidden_layers": 2, "pooled_layers": "1", "vocab_size": 500, "max_position_embeddings": 202}
        model = PoolingformerRobertaModel(PoolingformerRobertaConfig(**sizes), add_pooling_layer=False).eval()
        if not quantize:
            return model
        if library == "torch.ao":
            how = {nn.Linear: quantization.per_channel_dynamic_qconfig}
            return quantization.quantize_dynamic(model, how)
        quantization.quantize_(model, quantization.Int8DynamicActivationInt8WeightConfig())
        return model

    tokens = torch.randint(4, 500, (1, 200))
    expected, quantized = made(False)(tokens).last_hidden_state, made(True)
    actual = quantized(tokens).last_hidden_state
    assert 0.999 < nn.functional.cosine_similarity(actual, expected, dim=-1).min() < 1 - 1e-5
    stored = io.BytesIO()
    torch.save(quantized.state_dict(), stored)
    stored.seek(0)
    again = made(True)
    for parameter in again.embeddings.parameters():
        parameter.zero_()
    again.load_state_dict(torch.load(stored, weights_only=True))
    torch.testing.assert_close(again(tokens).last_hidden_state, actual, rtol=0, atol=0)
