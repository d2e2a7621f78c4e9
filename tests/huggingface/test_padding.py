"""Real tokens first, and back again, without a model."""

import pytest
import torch
from transformers.modeling_outputs import BaseModelOutput

from fairseq_poolingformer.huggingface.padding import Rows, encode

MASK = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 0], [0, 1, 0, 1, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]])
FIRST = [[2, 3, 4], [0, 1, 2, 3], [1, 3], [0, 1, 2, 3, 4], []]  # of each row: the columns of real tokens


def test_only_tokens_behind_padding_are_moved():
    for mask in (None, torch.ones(2, 3), torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1], [0, 0, 0]])):
        rows = Rows.of(mask)
        assert rows.order is None
        assert (rows.padding_mask is None) == (mask is None or bool(mask.all()))
        if rows.padding_mask is not None:
            assert rows.padding_mask.equal(mask == 0)
    assert Rows.of(torch.tensor([[1, 1], [0, 1]])).order is not None


@pytest.mark.parametrize("shape", [(5, 5), (5, 5, 3)])
def test_moved_and_back(shape):
    rows, x = Rows.of(MASK), torch.randn(shape)
    moved = rows.moved(x)
    for number, columns in enumerate(FIRST):
        assert moved[number, : len(columns)].equal(x[number, columns])
        assert rows.padding_mask[number].tolist() == [place >= len(columns) for place in range(5)]
    assert rows.back(moved).equal(x)
    assert rows.moved(None) is None
    three, one_for_all = Rows.of(MASK[:3]), torch.arange(5)[None]
    assert three.moved(one_for_all).equal(three.moved(one_for_all.expand(3, 5)))
    as_they_are = Rows.of(None)
    assert as_they_are.moved(x) is x
    assert as_they_are.back(x) is x


def test_global_tokens_are_the_first_real_ones_or_the_users():
    like = torch.zeros(5, 5, dtype=torch.long)
    masks = Rows.of(MASK).masks(like, None, 3)
    assert masks.shape == (5, 2, 1, 5)
    assert masks[:, 0, 0].sum(1).tolist() == [3, 3, 2, 3, 0]
    assert masks[:, 0, 0].equal((torch.arange(5) < 3) & ~masks[:, 1, 0])
    users = torch.tensor([[1, 0, 0, 0, 1], [0, 1, 0, 0, 1], [0, 0, 1, 1, 0], [0, 0, 0, 0, 1], [1, 1, 0, 0, 0]])
    chosen = Rows.of(MASK).masks(like, users, 3)[:, 0, 0]
    assert [row.nonzero().flatten().tolist() for row in chosen] == [[2], [1], [1], [4], []]
    assert Rows.of(None).masks(like, None, 1).tolist() == [[[[True, False, False, False, False]]]] * 5


@pytest.mark.parametrize("name", ["input_ids", "inputs_embeds"])
def test_outputs_stand_where_the_inputs_stood(name):
    values = torch.randint(9, (5, 5)) if name == "input_ids" else torch.randn(5, 5, 2)
    others = {"position_ids": torch.arange(25).view(5, 5)}
    inputs = {"input_ids": None, "inputs_embeds": None, name: values, **others}

    def run(input_ids, inputs_embeds, position_ids, attention_mask, return_dict, flag):
        assert (return_dict, flag, attention_mask.shape) == (True, 1, (5, 2, 1, 5))
        assert attention_mask[:, 0, 0].nonzero().tolist() == [[2, 1], [3, 3]]  # columns 3 of the input
        places = position_ids[2, :2].tolist()
        assert places == [11, 13]  # real tokens first
        hidden = (input_ids.unsqueeze(-1) if inputs_embeds is None else inputs_embeds).float()
        return BaseModelOutput(last_hidden_state=hidden, hidden_states=(hidden * 2, hidden))

    chosen = torch.zeros(5, 5, dtype=torch.long)
    chosen[2:4, 3] = 1
    actual = encode(run, inputs, MASK, chosen, longest=5, global_tokens=1, flag=1, return_dict=False)
    expected = (values.unsqueeze(-1) if name == "input_ids" else values).float()
    assert actual.last_hidden_state.equal(expected)
    assert [states.equal(expected * (2 - number)) for number, states in enumerate(actual.hidden_states)] == [True, True]


IDS, EMBEDS = torch.zeros(2, 5, dtype=torch.long), torch.zeros(2, 5, 3)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"input_ids": None}, "give either input_ids or inputs_embeds, exactly one of the two"),
        ({"inputs_embeds": EMBEDS}, "exactly one of the two"),
        ({"input_ids": IDS[0]}, r"input_ids must be \(batch, tokens\), got \(5,\); a single text is a batch of one"),
        ({"input_ids": None, "inputs_embeds": EMBEDS[0]}, r"must be \(batch, tokens, width\), got \(5, 3\)"),
        ({"input_ids": IDS[:, :0]}, r"input_ids has no tokens, its shape is \(2, 0\): give each text at least <s>"),
        (
            {"attention_mask": torch.ones(2, 4)},
            r"attention_mask must have a number for each token, \(2, 5\), got \(2, 4\)",
        ),
        ({"attention_mask": torch.ones(1, 5)}, r"^attention_mask must .* \(2, 5\), got \(1, 5\)"),
        ({"attention_mask": torch.ones(2, 1, 5, 5)}, r"^attention_mask must .* got \(2, 1, 5, 5\)"),
        ({"global_attention_mask": torch.ones(1, 5)}, r"^global_attention_mask must .* \(2, 5\), got \(1, 5\)"),
        ({}, "input of 5 tokens, the model takes 4 .* as a tokenizer with model_max_length=4 does"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs, words):
    arguments = {
        "input_ids": IDS,
        "inputs_embeds": None,
        "attention_mask": None,
        "global_attention_mask": None,
        **inputs,
    }
    masks = (arguments.pop("attention_mask"), arguments.pop("global_attention_mask"))
    with pytest.raises(ValueError, match=words):
        encode(None, arguments, *masks, longest=4, global_tokens=1)
