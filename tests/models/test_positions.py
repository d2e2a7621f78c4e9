"""Rows that begin at random positions in training, with fairseq's models."""

import pytest
import torch
from fairseq.modules import LearnedPositionalEmbedding

from fairseq_poolingformer.models.positions import LearnedPositions, PartlyFrozenPositions
from tests.models import tiny_bart, tiny_roberta

PAD, ROWS = 1, 3000
OFFSETS = ("--random-position-offsets",)


def table(num_positions=9):
    positions = LearnedPositionalEmbedding(num_positions + PAD + 1, 1, PAD)
    positions.weight.data = torch.arange(num_positions + PAD + 1.0)[:, None]
    return positions


def batch():
    """Rows of 5, 9 and 0 tokens and of 4 with padding on the left and in between, again and again."""
    tokens = torch.full((4, 9), 7)
    tokens[0, 5:] = tokens[2] = PAD
    tokens[3, [0, 1, 2, 5, 8]] = PAD
    return tokens.repeat(ROWS, 1)


@pytest.mark.parametrize("frozen", [False, True])
def test_offsets_are_uniform_over_what_leaves_room_and_padding_keeps_its_row(frozen):
    positions = LearnedPositions(table(), random_offsets=True)
    positions = PartlyFrozenPositions(positions, 4) if frozen else positions
    torch.manual_seed(1)
    tokens = batch()
    numbers = positions(tokens).squeeze(2).long()
    ordinary = table()(tokens).squeeze(2).long()
    assert numbers[tokens == PAD].eq(PAD).all()
    offset = (numbers - ordinary).amax(1)  # of rows whose tokens are all moved by it
    assert (numbers - ordinary).equal(offset[:, None] * (tokens != PAD))
    for row, room in ((0, 4), (1, 0), (3, 5)):
        counts = offset[row::4].bincount(minlength=room + 1)
        assert len(counts) == room + 1
        expected = ROWS / (room + 1)
        assert (counts - expected).abs().max() < 5 * expected**0.5


@pytest.mark.parametrize("training", [False, True])
def test_rows_begin_at_the_first_position_in_evaluation_and_without_the_flag(training):
    positions = LearnedPositions(table(), random_offsets=not training).train(training)
    assert positions(batch()).equal(table()(batch()))


@pytest.mark.parametrize("random_offsets", [False, True])
def test_rows_longer_than_the_table_are_refused(random_offsets):
    with pytest.raises(IndexError):
        LearnedPositions(table(8), random_offsets)(batch())


def test_gradients_reach_the_rows_that_were_used():
    positions = LearnedPositions(table(), random_offsets=True)
    used = positions(batch()[:1])
    used.sum().backward()
    rows = used.detach().flatten().long()
    assert positions.weight.grad.flatten().nonzero().flatten().equal(rows[rows != PAD])


def test_the_table_is_taken_over_without_drawing_a_number():
    plain, state = table(), torch.get_rng_state()
    positions = LearnedPositions(plain, random_offsets=True)
    assert positions.weight is plain.weight
    assert torch.get_rng_state().equal(state)
    assert positions.max_positions == plain.max_positions


@pytest.mark.parametrize("family", [tiny_bart, tiny_roberta])
@torch.no_grad()
def test_the_flag_moves_the_encoders_rows_in_training_alone(folder, family):
    no_dropout = ("--dropout", "0", "--attention-dropout", "0", "--activation-dropout", "0", "--pooled-layers", "2")
    _, plain = family.build(folder, *family.SIZES, *no_dropout)
    _, model = family.build(folder, *family.SIZES, *no_dropout, *OFFSETS)
    torch.testing.assert_close(model.state_dict(), plain.state_dict(), rtol=0, atol=0)
    tokens = tiny_roberta.sentences([20, 11])
    encoders = [family.encoder_of(plain), family.encoder_of(model)]
    expected, output = (encoder(tokens)["encoder_out"][0] for encoder in encoders)
    assert output.equal(expected)
    plain, moved = (encoder.train()(tokens)["encoder_out"][0] for encoder in encoders)
    assert plain.equal(expected)
    assert not moved.equal(expected)
    if family is tiny_bart:
        assert type(model.decoder.embed_positions) is LearnedPositionalEmbedding
