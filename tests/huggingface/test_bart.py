"""Poolingformer-BART in transformers: fairseq's model with the same weights, and what people do with a BART."""

from argparse import Namespace

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from fairseq_poolingformer.huggingface import PoolingformerBartForConditionalGeneration
from tests.huggingface.tiny_models import LEVELS, WIDE, converted, converted_back, enlarge
from tests.models import tiny_huggingface
from tests.weights.seq2seq import assert_agree, fairseq_outputs, load_fairseq


def make(path, **settings):
    """A random Poolingformer of fairseq's, its task, and the folder that it converts to."""
    settings = {**LEVELS, "max_source_positions": 50, **settings}
    arguments = ("--arch", "poolingformer_bart_base")
    (model, task), folder = converted(path, "bart", load_fairseq, settings, arguments=arguments)
    return model, task, folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("bart"))


@pytest.fixture
def pair(made):
    """fairseq's model and transformers', with the same weights."""
    model, _, folder = made
    theirs, info = AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    assert type(theirs) is PoolingformerBartForConditionalGeneration
    assert not any(value for key, value in info.items())
    model.zero_grad()
    return model.eval(), theirs.eval()


def outputs(model, source, target, **masks):
    with torch.no_grad():
        mask = source.ne(1).long()
        output = model(input_ids=source, attention_mask=mask, decoder_input_ids=target, **masks)
    return output.encoder_last_hidden_state, output.logits


def test_logits_are_fairseqs(pair):
    ours, theirs = pair
    source, target = tiny_huggingface.batch(length=50)
    assert_agree(fairseq_outputs(ours, source, target), theirs, source, target)
    without_levels = outputs(theirs, source, target)[1]
    theirs.model.encoder.layers[1].self_attn.pooling = None
    assert (outputs(theirs, source, target)[1] - without_levels).abs().max() > 1e-2


@pytest.mark.parametrize(
    "settings",
    [
        {"pool_type": "max", "pool_share_weights": True, "pool_alignment": "query"},
        {"pool_type": "mean-ldconv", "ldconv_heads": 2, "pool_mix": True, "pool_kernel_size": 3, "pool_stride": 2},
        {"separate_global_projections": True, "global_tokens": 3, "window_size": "2,5,3", "pool_type": "mean"},
        {"pool_merge": "softmax", "pool_type": "mean", "pool_kernel_size": 4, "dilation": "1,2", "dilated_layers": "0"},
    ],
)
def test_every_setting_is_kept(tmp_path, settings):
    model, _, folder = make(tmp_path, **settings)
    enlarge(model, ".global_")
    source, target = tiny_huggingface.batch(length=50)
    theirs = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    enlarge(theirs, ".global_")
    assert_agree(fairseq_outputs(model, source, target), theirs, source, target)


def test_weights_go_to_transformers_and_back_bit_for_bit(made, tmp_path):
    model, _, folder = made
    settings, checkpoint = converted_back(folder, model, tmp_path)
    assert {name: settings[name] for name in LEVELS} == LEVELS
    assert settings["arch"] == "poolingformer_bart_base"
    source, target = tiny_huggingface.batch()
    expected = fairseq_outputs(model, source, target)
    assert all(map(torch.equal, fairseq_outputs(load_fairseq(checkpoint)[0], source, target), expected))


def test_five_beams_write_what_fairseq_writes(made, pair):
    """All five hypotheses with their scores, under fairseq's conditions. The source is encoded once for all beams."""
    from tests.tasks.summarization.test_beams import BEAM, LIMIT, as_fairseq, their_search

    (_, task, _), (ours, theirs) = made, pair
    source, _ = tiny_huggingface.batch(length=40)
    limits = {"beam": BEAM, "nbest": BEAM, "max_len_b": LIMIT, "min_len": LIMIT, "lenpen": 2.0}
    generator = task.build_generator([ours], Namespace(**limits))
    batches = []
    theirs.model.encoder.register_forward_hook(lambda module, inputs, output: batches.append(len(output[0])))
    for row in source:
        document = row[row.ne(1)]
        inputs = {"src_tokens": document[None], "src_lengths": torch.tensor([len(document)])}
        (actual,) = task.inference_step(generator, [ours], {"net_input": inputs})
        expected = their_search(theirs, document, 2.0, **as_fairseq(theirs, LIMIT))
        assert [hypothesis["tokens"].tolist() for hypothesis in actual] == [tokens for tokens, _ in expected]
        scores = [float(hypothesis["score"]) for hypothesis in actual]
        assert scores == pytest.approx([score for _, score in expected], abs=1e-4)
    assert batches == [1, 1, 1]


def test_from_short_computes_what_the_short_model_computes():
    short = tiny_huggingface.model("bart", max_position_embeddings=22)
    wide = PoolingformerBartForConditionalGeneration.from_short(short, max_position_embeddings=60, **WIDE)
    source, target = tiny_huggingface.batch()
    torch.testing.assert_close(outputs(wide, source, target)[1], outputs(short, source, target)[1], rtol=0, atol=1e-5)
    table, long = short.model.encoder.embed_positions.weight, wide.model.encoder.embed_positions.weight
    assert torch.equal(long[:24], table)
    assert torch.equal(long[24:46], table[2:24])
    assert torch.equal(long[46:], table[2:18])
    assert torch.equal(wide.model.decoder.embed_positions.weight, short.model.decoder.embed_positions.weight)
    copied = PoolingformerBartForConditionalGeneration.from_short(short, pooled_init="copy")
    attention = copied.model.encoder.layers[2].self_attn
    assert torch.equal(attention.pooled_v_proj.weight, attention.v_proj.weight)
    silent = {**WIDE, "pooled_layers": "0-2", "pool_merge": "sum"}
    silent = PoolingformerBartForConditionalGeneration.from_short(short, **silent)
    torch.testing.assert_close(outputs(silent, source, target)[1], outputs(short, source, target)[1], rtol=0, atol=1e-5)
    assert silent.config.pooled_init == "copy-zero-values"
    separate = PoolingformerBartForConditionalGeneration.from_short(
        short, separate_global_projections=True, pool_merge="sum", pooled_init="random"
    )
    attention = separate.model.encoder.layers[2].self_attn
    assert torch.equal(attention.global_k_proj.weight, short.model.encoder.layers[2].self_attn.k_proj.weight)
    assert separate.config.pooled_layers == "1-2"
    assert attention.pooled_q_proj.weight.std().item() == pytest.approx(0.02, rel=0.2)
    assert attention.pooled_v_pool_weight.std().item() == pytest.approx(0.02, rel=0.4)


def test_too_long_inputs_are_refused(pair):
    _, theirs = pair
    with pytest.raises(ValueError, match="input of 51 tokens, the model takes 50"):
        theirs(torch.zeros(1, 51, dtype=torch.long))
    source = torch.zeros(1, 9, dtype=torch.long)
    short = PoolingformerBartForConditionalGeneration.from_short(tiny_huggingface.model("bart"), **LEVELS)
    short.config.max_decoder_position_embeddings = 8
    short(source, labels=source[:, :8])
    for inputs in (
        {"labels": source},
        {"decoder_input_ids": source},
        {"decoder_inputs_embeds": torch.zeros(1, 9, 24)},
        {},
    ):
        with pytest.raises(ValueError, match=r"9 tokens for the decoder, which takes 8 .* truncate the labels"):
            short(source, **inputs)
