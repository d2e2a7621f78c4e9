"""A small recurrent language model of bytes, as a --user-dir: its memory is exact, however a text is cut."""

from dataclasses import dataclass, field

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel, register_model
from torch import nn

from fairseq_poolingformer import register
from fairseq_poolingformer.text.byte_symbols import NUM_SYMBOLS

register()  # also where fairseq came after the package


@dataclass
class RecurrentLMConfig(FairseqDataclass):
    forgetful: bool = field(default=False, metadata={"help": "a model without memory"})
    dropout: float = field(default=0.0, metadata={"help": "of the states"})


@register_model("recurrent_lm", dataclass=RecurrentLMConfig)
class RecurrentLM(BaseFairseqModel):
    """A GRU; its state after a segment is the memory, (B, 1, C) for its only layer."""

    def __init__(self, forgetful=False, dropout=0.0):
        super().__init__()
        self.embedding = nn.Embedding(NUM_SYMBOLS, 16)
        self.gru = nn.GRU(16, 24, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(24, NUM_SYMBOLS)
        self.memory_length = 0 if forgetful else 1

    @classmethod
    def build_model(cls, cfg, task):
        return cls(cfg.forgetful, cfg.dropout)

    def max_positions(self):
        return None

    def forward(self, src_tokens, memory=None):
        state = None if memory is None else memory[0].transpose(0, 1).contiguous()
        features, state = self.gru(self.embedding(src_tokens), state)
        carried = [state.transpose(0, 1)] if self.memory_length else None
        return self.output(self.dropout(features)), {"memory": carried}


def build(seed=0, **settings):
    """A model in eval mode with parameters large enough that its state matters."""
    torch.manual_seed(seed)
    model = RecurrentLM(**settings)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return model.eval()
