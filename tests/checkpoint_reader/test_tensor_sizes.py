"""Sizes in a configuration against the tensors of the same file."""

import pytest
import torch
from torch import nn

from fairseq_poolingformer.checkpoint_reader.errors import ConfigurationError
from fairseq_poolingformer.checkpoint_reader.tensor_sizes import Building, check_sizes

STATE = {"encoder.embed_tokens.weight": torch.zeros(9, 4), "encoder.layers.1.fc1.weight": torch.zeros(8, 4)}


def test_sizes_of_the_tensors_are_accepted():
    check_sizes({"encoder_layers": 2, "encoder_embed_dim": 4, "encoder_ffn_embed_dim": 8, "other_dim": 4096}, STATE)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("encoder_layers", 3, "those of 2 layers"),
        ("encoder_embed_dim", 5, r"encoder.embed_tokens.weight is \(9, 4\)"),
        ("encoder_ffn_embed_dim", 9, r"fc1.weight is \(8, 4\)"),
        ("other_dim", 4097, "none of its tensors is so wide"),
    ],
)
def test_larger_ones_are_refused(option, value, said):
    with pytest.raises(ConfigurationError, match=f"its option {option} is {value:,}.*{said}"):
        check_sizes({option: value}, STATE)


def test_no_more_is_built_than_the_file_holds():
    with Building(STATE):
        assert nn.Linear(8, 4).weight.shape == (4, 8)
    with pytest.raises(ConfigurationError, match="more parameters than the 68 that it holds"), Building(STATE):
        torch.empty(2**27)
    with pytest.raises(ConfigurationError, match="more parameters"), Building(STATE):
        all(torch.empty(1).numel() for _ in range(Building.MORE_CALLS + 300))
