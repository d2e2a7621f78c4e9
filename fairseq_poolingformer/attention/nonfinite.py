"""NaN and inf in keys and values that nobody sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.attention.call import Call


def run_around_nonfinite(call: Call, run: Callable[[Call], Any]) -> Any:
    """``run(call)``, where NaN and inf in keys and values reach only the queries that see them.

    A backend multiplies a whole block of keys with weights that are zero where a key is not seen, and 0·NaN is NaN. If
    any key or value is not finite, the call is therefore run with zeros in their place, and a second call finds the
    queries that see one of them: their outputs are NaN, and they take no part in the gradients.

    The check reads keys and values once. On a GPU it would make every call wait for the device. There, padded keys and
    values are replaced by zeros without a look at them, and those that are not padded must be finite.
    """
    if call.key.device.type != "cpu":
        return run(without_padding(call))
    if _is_finite(call.key) and _is_finite(call.value):
        return run(call)
    bad = ~(call.key.isfinite() & call.value.isfinite()).all(-1, keepdim=True)  # (B, H, S, 1)
    key, value = call.key.masked_fill(bad, 0.0), call.value.masked_fill(bad, 0.0)
    out = run(replace(call, key=key, value=value))
    with torch.no_grad():
        query, key = torch.zeros_like(call.query), torch.zeros_like(call.key)
        value = bad.to(call.value.dtype).expand_as(key)
        seen = run(replace(call, query=query, key=key, value=value, dropout_p=0.0, return_lse=False)) > 0.0
    if call.return_lse:
        return out[0].masked_fill(seen, torch.nan), out[1].masked_fill(seen[..., 0], torch.nan)
    return out.masked_fill(seen, torch.nan)


def without_padding(call: Call) -> Call:
    """The call with zeros as padded keys and values."""
    if call.key_padding_mask is None:
        return call
    padded = call.key_padding_mask[:, None, :, None]
    return replace(call, key=call.key.masked_fill(padded, 0.0), value=call.value.masked_fill(padded, 0.0))


def _is_finite(x: Tensor) -> bool:
    """Whether every element is finite; False also where the sum of finite elements overflows."""
    return bool(x.detach().sum(dtype=torch.promote_types(x.dtype, torch.float32)).isfinite())
