"""``random_position_offsets`` and ``position_init`` of the models for transformers."""

import pytest
import torch

from fairseq_poolingformer.huggingface import (
    PoolingformerBartForConditionalGeneration,
    PoolingformerMBartForConditionalGeneration,
    PoolingformerRobertaForMaskedLM,
    PoolingformerRobertaForSequenceClassification,
    PoolingformerRobertaModel,
)
from tests.huggingface.test_training import LENGTH, WORDS, make
from tests.models import tiny_huggingface

FIRST = 2  # the row of the first position
POSITIONS = 40
PAIRS = (PoolingformerBartForConditionalGeneration, PoolingformerMBartForConditionalGeneration)
ENCODERS = (PoolingformerRobertaForMaskedLM, PoolingformerRobertaForSequenceClassification)


def offset_model(model_class, **settings):
    """A random model in training whose rows begin at random positions."""
    is_pair = model_class in PAIRS
    sizes = {"max_position_embeddings": POSITIONS + (0 if is_pair else FIRST)}
    return make(model_class, random_position_offsets=True, **sizes, **settings).train()


def rows_used(model, **inputs):
    """(B, T) the row of the table of positions that each token has had, and the output."""
    if type(model) in PAIRS:
        positions = model.model.encoder.embed_positions
    else:
        positions = model.base_model.embeddings.position_embeddings
    embedded = []
    handle = positions.register_forward_hook(lambda module, inputs, output: embedded.append(output.detach()))
    output = model(**inputs)
    handle.remove()
    (used,) = embedded
    used = used.expand(len(next(iter(inputs.values()))), -1, -1)
    return torch.cdist(used, positions.weight).argmin(2), output


def batch(lengths, side="right"):
    """Token ids, and their mask, with padding on a side."""
    torch.manual_seed(4)
    tokens, mask = torch.ones(len(lengths), LENGTH, dtype=torch.long), torch.zeros(len(lengths), LENGTH)
    for number, length in enumerate(lengths):
        where = slice(0, length) if side == "right" else slice(LENGTH - length, LENGTH)
        tokens[number, where], mask[number, where] = torch.randint(3, WORDS, (length,)), 1
    return {"input_ids": tokens, "attention_mask": mask.long()}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("model_class", [*PAIRS, *ENCODERS])
@torch.no_grad()
def test_rows_begin_at_random_positions_in_training_alone(model_class, side):
    """The first row is the longest, the last one has 5 tokens; with padding on the left, tokens are moved first."""
    model = offset_model(model_class)
    inputs = batch([LENGTH, *[5] * 60], side)
    if model_class in PAIRS:
        inputs["decoder_input_ids"] = inputs["input_ids"][:, :3]
    rows, _ = rows_used(model, **inputs)
    long, short = rows[0], rows[1:, :5]
    assert long.diff().eq(1).all()
    assert short.diff(dim=1).eq(1).all()
    room = POSITIONS - (LENGTH if model_class in PAIRS else 5)  # BART leaves room for the longest row
    offsets = short[:, 0] - FIRST
    assert offsets.min() >= 0
    assert offsets.max() <= room
    assert offsets.unique().numel() > room // 2
    if model_class not in PAIRS:
        assert rows[1:, 5:].eq(1).all()  # padding has its own row
    rows, _ = rows_used(model.eval(), **inputs)
    assert rows[:, 0].eq(FIRST).all()
    plain = make(model_class, max_position_embeddings=model.config.max_position_embeddings).train()
    rows, _ = rows_used(plain, **inputs)
    assert rows[:, 0].eq(FIRST).all()


@torch.no_grad()
def test_offsets_are_uniform_over_what_leaves_room():
    positions = offset_model(PAIRS[0]).model.encoder.embed_positions
    embedded = positions(torch.zeros(1700, LENGTH))
    offsets = torch.cdist(embedded[:, 0], positions.weight).argmin(1) - FIRST
    counts = offsets.bincount(minlength=POSITIONS - LENGTH + 1)
    assert len(counts) == POSITIONS - LENGTH + 1 == 17
    assert (counts - 100).abs().max() < 50


@torch.no_grad()
def test_positions_and_embeddings_of_the_users_own():
    model, inputs = offset_model(PoolingformerRobertaForMaskedLM), batch([LENGTH, 5])
    places = torch.arange(LENGTH)[None] + 7
    assert rows_used(model, **inputs, position_ids=places)[0].eq(places).all()
    embeds = model.roberta.embeddings.word_embeddings(inputs["input_ids"])
    rows, _ = rows_used(model, inputs_embeds=embeds, attention_mask=inputs["attention_mask"])
    assert rows.diff(dim=1).eq(1).all()
    assert rows.min() >= FIRST


@pytest.mark.parametrize(("kind", "model_class"), [("bart", PAIRS[0]), ("mbart", PAIRS[1]), ("roberta", ENCODERS[0])])
def test_from_short_interpolates_where_asked(kind, model_class):
    """5 positions become 9: the old ones, and their means between."""
    short = tiny_huggingface.model(kind, max_position_embeddings=5 if model_class in PAIRS else 7)
    settings = {"max_position_embeddings": 9 if model_class in PAIRS else 11, "position_init": "interpolate"}
    long = model_class.from_short(short, **settings, random_position_offsets=True)
    tables = [
        model.model.encoder.embed_positions if model_class in PAIRS else model.roberta.embeddings.position_embeddings
        for model in (short, long)
    ]
    old, new = (table.weight for table in tables)
    assert new[:FIRST].equal(old[:FIRST])
    assert new[FIRST::2].equal(old[FIRST:])
    torch.testing.assert_close(new[FIRST + 1 :: 2], (old[FIRST:-1] + old[FIRST + 1 :]) / 2)
    assert long.config.random_position_offsets


@torch.no_grad()
def test_rows_begin_behind_padding_whatever_its_id():
    model = make(PoolingformerRobertaModel, random_position_offsets=True, max_position_embeddings=34, pad_token_id=3)
    tokens = torch.randint(4, WORDS, (400, LENGTH))
    tokens[:, 5:] = 3
    rows, _ = rows_used(model.train(), input_ids=tokens, attention_mask=tokens.ne(3).long())
    assert rows[:, 5:].eq(3).all()
    assert (rows[:, 0].min(), rows[:, 4].max()) == (4, 33)
