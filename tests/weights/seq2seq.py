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


def assert_agree(ours, theirs, source):
    """Encoder outputs at real tokens and the logits of our rows, nearly to 1e-5, of outputs that are not all alike."""
    real = source.ne(1)
    assert theirs[1].std() > 0.3
    torch.testing.assert_close(ours[0][real], theirs[0][real], rtol=0, atol=1e-5)
    assert ours[1].size(-1) >= ROWS - 1
    torch.testing.assert_close(ours[1], theirs[1][..., : ours[1].size(-1)], rtol=1e-6, atol=1e-5)


def assert_models_agree(ours, theirs, global_tokens=0):
    """:func:`assert_agree` of what both compute of one batch."""
    source, target = tiny_huggingface.batch()
    expected = huggingface_outputs(theirs, source, target, global_tokens)
    assert_agree(fairseq_outputs(ours, source, target), expected, source)
