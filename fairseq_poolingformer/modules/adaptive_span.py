"""How far each head of each layer looks back, as it learns it (Sukhbaatar et al. 2019; GAA eq. 1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

ROUND_TO = 64  # positions; what is trimmed changes its shape rarely


class AdaptiveSpans(nn.Module):
    """A span for every head: ``S·[z(1 − l) + l]`` positions, z of the head, l of all layers and heads (GAA eq. 1).

    Without ``shared`` there is no l, and this is Sukhbaatar et al.'s. z and l begin at 0 and stay between 0 and 1: an
    update that has left the interval is taken back before the next forward pass, and a gradient that points out of
    it from its edge counts as 0, so that no momentum and no float32 copy of a 16-bit parameter runs away with it.

    Args:
        num_layers, num_heads: of the model.
        max_span: S, positions.
        ramp: R, positions over which a head's sight fades behind its span.
        shared: whether there is l.

    Raises:
        ValueError: a number is out of range.
    """

    def __init__(self, num_layers: int, num_heads: int, *, max_span: int, ramp: int, shared: bool) -> None:
        super().__init__()
        if max_span < 1 or ramp < 1:
            raise ValueError(f"--max-span and --span-ramp must be 1 or more, got {max_span} and {ramp}")
        self.max_span, self.ramp = max_span, ramp
        self.z = nn.Parameter(torch.zeros(num_layers, num_heads))
        self.shared = nn.Parameter(torch.zeros(1)) if shared else None

    def forward(self) -> Tensor:
        """(layers, H) spans in positions, float32 (float64 for parameters in that)."""
        z = _InUnitInterval.apply(self.z)
        z = z if z.dtype == torch.float64 else z.float()
        if self.shared is not None:
            shared = _InUnitInterval.apply(self.shared).to(z.dtype)
            z = z * (1 - shared) + shared
        return self.max_span * z

    def reaches(self, spans: Tensor) -> list[int]:
        """For each layer the farthest distance that one of its heads sees, rounded up; at most S.

        Args:
            spans: as :meth:`forward` gives them. They are waited for.
        """
        farthest = (spans.detach().amax(1) + self.ramp).ceil().long().tolist()
        return [min(self.max_span, -(-reach // ROUND_TO) * ROUND_TO) for reach in farthest]

    def set_num_updates(self, num_updates: int) -> None:
        """fairseq calls this before every training step: take parameters back into the interval."""
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.clamp_(0.0, 1.0)


class _InUnitInterval(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp(0.0, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        leaves = ((x <= 0.0) & (grad > 0.0)) | ((x >= 1.0) & (grad < 0.0))  # a step goes against the gradient
        return grad.masked_fill(leaves, 0.0)
