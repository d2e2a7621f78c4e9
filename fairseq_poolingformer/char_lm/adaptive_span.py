"""Adaptive spans: each head of each layer learns how far it looks back (Sukhbaatar et al. 2019; GAA eq. 1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fairseq_poolingformer.attention.first_order import first_order

ROUND_TO = 64  # positions: trimmed keys change their shape rarely


class AdaptiveSpans(nn.Module):
    """A span for every head: ``S·[z(1 − l) + l]`` positions, z of the head, l of all layers and heads (GAA eq. 1)."""

    # Without ``shared`` no l (Sukhbaatar et al.). z is a parameter a layer, so that clipping by parameter is by layer.
    # Both begin at 0 and stay in [0, 1], into which :meth:`set_num_updates`, which fairseq calls, moves them

    def __init__(self, num_layers: int, num_heads: int, *, max_span: int, ramp: int, shared: bool) -> None:
        super().__init__()
        if max_span < 1 or ramp < 1:
            raise ValueError(f"--max-span and --span-ramp must be 1 or more, got {max_span} and {ramp}")
        self.max_span, self.ramp = max_span, ramp
        self.z = nn.ParameterList(torch.zeros(num_heads) for _ in range(num_layers))
        self.shared = nn.Parameter(torch.zeros(1)) if shared else None

    def forward(self) -> Tensor:
        """(layers, H) spans in positions, float32 (float64 for parameters in that)."""
        z = _InUnitInterval.apply(torch.stack(list(self.z)))
        z = z if z.dtype == torch.float64 else z.float()
        if self.shared is not None:
            shared = _InUnitInterval.apply(self.shared).to(z.dtype)
            z = z * (1 - shared) + shared
        return self.max_span * z

    def reaches(self, spans: Tensor) -> list[int]:
        """For each layer the farthest distance that one of its heads sees, rounded up; at most S."""
        farthest = (spans.detach().amax(1) + self.ramp).ceil().long().tolist()
        return [min(self.max_span, -(-reach // ROUND_TO) * ROUND_TO) for reach in farthest]

    def set_num_updates(self, num_updates: int) -> None:
        """Move the parameters back into [0, 1]; fairseq calls this before every training step."""
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.clamp_(0.0, 1.0)


class _InUnitInterval(torch.autograd.Function):
    """Clamp to [0, 1]. The gradient passes, as in the published code, where an update is followed by the clamping."""

    # not in half precision where a step would leave the interval: fairseq updates float32 copies, which would run away

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp(0.0, 1.0)

    @staticmethod
    @first_order
    def backward(ctx, saved, grad: Tensor) -> Tensor:
        (x,) = saved
        if x.dtype in (torch.float32, torch.float64):
            return grad
        leaves = ((x <= 0.0) & (grad > 0.0)) | ((x >= 1.0) & (grad < 0.0))  # a step goes against the gradient
        return grad.masked_fill(leaves, 0.0)
