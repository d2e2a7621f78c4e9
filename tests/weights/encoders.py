"""A RoBERTa in fairseq and its counterpart in transformers: loaded, run, compared."""

import torch

from tests.models import tiny_huggingface

ROWS = len(tiny_huggingface.vocabulary())
LENGTHS = (22, 13, 6)


def load(path, **overrides):
    """The model as every command line of fairseq loads it, in double precision."""
    from fairseq import checkpoint_utils

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


def deberta_ids(tokens):
    """DeBERTa's ids of fairseq's: <s> and <pad> are 1 and 0 there."""
    return torch.where(tokens < 2, 1 - tokens, tokens)


@torch.no_grad()
def assert_agree(ours, theirs, tokens, global_mask=None, head=True):
    """Features, and logits of the head, of real tokens to 1e-5, of outputs that are not all alike."""
    theirs, real = theirs.double(), tokens.ne(1)
    is_deberta = theirs.config.model_type == "deberta"
    inputs = {"input_ids": deberta_ids(tokens) if is_deberta else tokens, "attention_mask": real.long()}
    if global_mask is not None:
        inputs["global_attention_mask"] = global_mask.long()
    masks = {} if global_mask is None else {"global_mask": global_mask}
    features = theirs.base_model(**inputs).last_hidden_state
    assert features.std() > 0.3
    torch.testing.assert_close(ours(tokens, features_only=True, **masks)[0][real], features[real], rtol=0, atol=1e-5)
    output = ours(tokens, **masks)[0]
    assert output.isfinite().all()
    if head:
        logits = theirs(**inputs).logits
        logits = logits[..., deberta_ids(torch.arange(ROWS))] if is_deberta else logits
        assert logits.std() > 0.3
        torch.testing.assert_close(output[real], logits[real], rtol=0, atol=1e-5)
