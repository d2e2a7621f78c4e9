"""A BART in fairseq and its counterpart in transformers: loaded, run, compared."""

import torch

from tests.models import tiny_huggingface

ROWS = len(tiny_huggingface.vocabulary())


def load_fairseq(path, **overrides):
    """The model as generation loads it: from the settings in the checkpoint alone."""
    from fairseq import checkpoint_utils

    overrides["data"] = str(path.parent)
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], arg_overrides=overrides)
    return models[0].eval(), task


@torch.no_grad()
def huggingface_outputs(model, source, target, global_tokens=0):
    """Encoder output (B, S, C) and logits (B, T, V)."""
    inputs = {"input_ids": source, "attention_mask": source.ne(1).long(), "decoder_input_ids": target}
    if global_tokens:
        inputs["global_attention_mask"] = (torch.arange(source.size(1)) < global_tokens).long().expand_as(source)
    output = model(**inputs)
    return output.encoder_last_hidden_state, output.logits


@torch.no_grad()
def fairseq_outputs(model, source, target):
    """Encoder output (B, S, C) and logits (B, T, V)."""
    lengths = source.ne(1).sum(1)
    encoded = model.encoder(source, lengths)["encoder_out"][0].transpose(0, 1)
    return encoded, model(source, lengths, target)[0]


def assert_agree(ours, theirs, source, target, global_tokens=0):
    """``ours``, outputs of fairseq's model, and those of a model of transformers, which are not all alike.

    Encoder outputs at real tokens and the logits of our rows differ from the model's in float64 by at most twice the
    error of the model in float32.
    """
    inputs, real = (source, target, global_tokens), source.ne(1)
    exact, plain = huggingface_outputs(theirs.double(), *inputs), huggingface_outputs(theirs.float(), *inputs)
    assert exact[1].std() > 0.3
    rows = ours[1].size(-1)
    assert rows >= ROWS - 1
    for outputs in zip(
        (ours[0][real], ours[1]), *((x[0][real], x[1][..., :rows]) for x in (plain, exact)), strict=True
    ):
        actual, rounded, expected = (x.double() for x in outputs)
        torch.testing.assert_close(actual, expected, rtol=0, atol=2 * float((rounded - expected).abs().max()))


def assert_models_agree(ours, theirs, global_tokens=0):
    """:func:`assert_agree` of what both compute of one batch."""
    source, target = tiny_huggingface.batch()
    assert_agree(fairseq_outputs(ours, source, target), theirs, source, target, global_tokens)
