"""Recompute instead of save: activations, and dropout masks on a CPU.

Both matter at thousands of tokens: the activated hidden vectors are as many numbers as the layer's whole attention
saves, and on a CPU torch's dropout saves its mask in the dtype of its input, where a GPU saves a byte.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from fairseq.modules import gelu
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from fairseq_poolingformer.attention.dropout import KeepMask
from fairseq_poolingformer.attention.first_order import first_order
from fairseq_poolingformer.attention.plain_linear import is_plain_linear


def activated_linear(hidden: Tensor, activation: Callable[[Tensor], Tensor], linear: nn.Module) -> Tensor:
    """``linear(activation(hidden))``; the backward pass recomputes the activation where ``linear`` is a plain one."""
    # the compiler decides what to recompute
    if torch.compiler.is_compiling() or not is_plain_linear(linear) or linear.bias is None:
        return linear(activation(hidden))
    return _ActivatedLinear.apply(hidden, linear.weight, linear.bias, activation)


class _ActivatedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden: Tensor, weight: Tensor, bias: Tensor, activation: Callable) -> Tensor:
        ctx.save_for_backward(hidden, weight)
        ctx.activation, ctx.bias_dtype = activation, bias.dtype
        # under autocast the weights are wider than what they are multiplied with
        return F.linear(activation(hidden), weight.to(hidden.dtype), bias.to(hidden.dtype))

    @staticmethod
    @first_order
    def backward(ctx, saved, grad: Tensor):
        hidden, weight = saved
        grad_hidden = grad_weight = grad_bias = None
        needs_hidden, needs_weight, needs_bias, _ = ctx.needs_input_grad
        grad_activated = grad @ weight.to(grad.dtype) if needs_hidden else None
        with torch.set_grad_enabled(ctx.activation is not gelu):
            hidden = hidden.detach().requires_grad_()
            activated = ctx.activation(hidden)
        # without a graph where the derivative is known, in less of the host's time; in float32, as fairseq
        if needs_hidden and ctx.activation is gelu:
            grad_hidden = torch.ops.aten.gelu_backward(grad_activated.float(), hidden.float()).to(hidden.dtype)
        elif needs_hidden:
            (grad_hidden,) = torch.autograd.grad(activated, hidden, grad_activated)
        grad, activated = grad.flatten(0, -2), activated.detach().flatten(0, -2)
        if needs_weight:
            grad_weight = (grad.t() @ activated).to(weight.dtype)
        if needs_bias:
            grad_bias = grad.sum(0).to(ctx.bias_dtype)
        return grad_hidden, grad_weight, grad_bias, None


class SeededDropout(FairseqDropout):
    """fairseq's dropout; on a CPU the mask is drawn faster, and drawn again in the backward pass instead of saved."""

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        """Drop elements of ``x`` in training, and scale the others up."""
        active = self.p > 0 and (self.training or self.apply_during_inference)
        if x.device.type != "cpu" or not active or torch.compiler.is_compiling():
            return super().forward(x, inplace)
        return _SeededDropout.apply(x, KeepMask.draw(self.p, x.device))


class _SeededDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, mask: KeepMask) -> Tensor:
        ctx.mask = mask
        return mask.like(x).mul_(x).mul_(1 / mask.keep)

    @staticmethod
    @first_order
    def backward(ctx, saved, grad: Tensor):
        return ctx.mask.like(grad).mul_(grad).mul_(1 / ctx.mask.keep), None
