"""What each of a few gloo processes computes for test_exchange.py; each writes its results to a folder."""

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import torch
import torch.distributed as distributed
from torch.utils.checkpoint import checkpoint

from fairseq_poolingformer.attention import (
    DisentangledPosition,
    Pooling,
    RelativePositionBias,
    TwoLevelAttention,
    Window,
)
from fairseq_poolingformer.attention.sharding import GroupRanks
from tests.attention.sharding.ranks import of_part
from tests.attention.test_rotary import rotary_of

GROUPS = 1, 2, 4  # sizes
C, H = 8, 2
POSITIONS = [(H, 13), (H, 12, C // H), (H, 12, C // H), (H, 6, C // H), (H, 6, C // H)]


@dataclass(frozen=True)
class Case:
    """A layer and a document; ``globals`` is a step between global tokens, ``lengths`` those of the two rows."""

    window: Window = field(default=Window(5))
    pooling: Pooling = field(default=Pooling(5, 4))
    num_tokens: int = 83
    globals: int | None = 20
    lengths: tuple[int, int] | None = None
    layer: dict = field(default_factory=dict)
    terms: bool = False
    rotary: bool = False
    dropout: float = 0.0
    recomputed: bool = False
    dtype: torch.dtype = torch.float64

    def make(self):
        """The layer and the document, the same in every process."""
        torch.manual_seed(0)
        level_two = {"pooled_window": Window(14), "pooling": self.pooling}
        layer = TwoLevelAttention(C, H, window=self.window, dropout=self.dropout, **{**level_two, **self.layer})
        x, grad = torch.randn(2, 2, self.num_tokens, C, dtype=torch.float64).to(self.dtype)
        place = torch.arange(self.num_tokens).expand(2, -1)
        document = {"x": x, "grad": grad, "global_mask": None, "key_padding_mask": None}
        if self.globals is not None:
            document["global_mask"] = place % self.globals == torch.tensor([[0], [3]])
        if self.lengths is not None:
            document["key_padding_mask"] = place >= torch.tensor(self.lengths)[:, None]
        if self.terms:
            document["tensors"] = [torch.randn(shape, dtype=self.dtype) for shape in POSITIONS]
            document["terms"] = lambda bias, *tables: (RelativePositionBias(bias), DisentangledPosition(*tables, 30))
        if self.rotary:
            document["rotary"] = rotary_of(place[:1], layer.pooling, document["key_padding_mask"])
        layer = layer.to(self.dtype)
        return (Recomputed(layer) if self.recomputed else layer), document

    def parts(self, size):
        """Uneven parts: of one rank 3, 5, 2 and 7 shares, of one token or more."""
        shares = [3, 5, 2, 7][:size]
        rest = self.num_tokens - size
        ends = [rest * sum(shares[:n]) // sum(shares) + n for n in range(size + 1)]
        return [range(*pair) for pair in pairwise(ends)]


class Recomputed(torch.nn.Module):
    """Two layers in turn, computed again in the backward pass."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, **arguments):
        for _ in range(2):
            x = x + checkpoint(self.layer, x, use_reentrant=False, **arguments)
        return x


CASES = {
    "plain": Case(globals=None),
    "globals and padding": Case(lengths=(83, 40)),
    "a rank of padding alone": Case(lengths=(30, 0)),
    "barely as many tokens as ranks": Case(num_tokens=5, globals=2),
    "borders wider than two ranks": Case(Window(60), num_tokens=70, layer={"pooled_window": Window(70)}),
    "dilated": Case(Window(3, None, (1, 4))),
    "causal": Case(Window(4, 0), layer={"pooled_window": Window(9, 0)}, globals=None),
    "unlimited": Case(Window.unlimited()),
    "level one alone": Case(layer={"pooled_window": None, "pooling": None}),
    "query alignment": Case(pooling=Pooling(4, 3, "query"), lengths=(83, 61)),
    "more strides than tokens of a pool": Case(pooling=Pooling(2, 7), num_tokens=40),
    "separate global projections": Case(layer={"separate_global_projections": True}, lengths=(70, 83)),
    "mean": Case(layer={"pool_type": "mean"}),
    "max": Case(layer={"pool_type": "max"}, lengths=(83, 50)),
    "mean-ldconv": Case(layer={"pool_type": "mean-ldconv", "ldconv_heads": 2}),
    "mix": Case(Window(1), layer={"mix": True}),
    "shared weights": Case(layer={"mix": True, "share_weights": True, "ldconv_heads": 2}),
    "score terms": Case(Window(5), terms=True, lengths=(83, 61)),
    "rotary": Case(rotary=True, lengths=(83, 40)),
    "rotary, separate": Case(rotary=True, recomputed=True, layer={"separate_global_projections": True}),
    "reference": Case(layer={"backend": "reference"}, lengths=(83, 40)),
    "dropout": Case(dropout=0.3, lengths=(83, 40)),
    "dropout, separate": Case(dropout=0.3, layer={"separate_global_projections": True}),
    "dropout, score terms": Case(dropout=0.3, terms=True),
    "dropout, reference": Case(dropout=0.3, layer={"backend": "reference"}),
    "dropout, recomputed": Case(dropout=0.3, recomputed=True),
    "recomputed": Case(recomputed=True, lengths=(83, 40)),
    "float32": Case(lengths=(83, 40), dtype=torch.float32),
}


def result(case, ranks, size, rank=0):
    layer, document = case.make()
    return of_part(layer, document, case.parts(size)[rank], ranks, seed=3)


def main(rank, size, folder):
    torch.set_num_threads(1)  # threads of the process that this one is a copy of do not exist in it
    distributed.init_process_group("gloo", init_method=f"file://{folder}/init", rank=rank, world_size=size)
    groups = {n: distributed.new_group(list(range(n))) for n in GROUPS}
    for number, group in groups.items():
        if rank < number:
            for name, case in CASES.items():
                found = result(case, GroupRanks(group), number, rank)
                torch.save(found, Path(folder, f"{name} {number} {rank}.pt"))
    distributed.barrier()
    distributed.destroy_process_group()
