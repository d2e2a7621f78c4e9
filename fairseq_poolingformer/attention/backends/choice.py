"""The choice of a backend for a call."""

from __future__ import annotations

import logging
from functools import cache

from fairseq_poolingformer.attention.backends import BACKENDS
from fairseq_poolingformer.attention.backends.self_check import warn_once
from fairseq_poolingformer.attention.call import Call

logger = logging.getLogger(__name__)


def pick(call: Call, name: str | None) -> str:
    """The named backend, or else the fastest one.

    Raises:
        ValueError: it cannot run the call.
    """
    if name is None:
        name, refusals = fastest_backend(call)
        _announce_once(name, call.query.device.type, refusals)
        return name
    if name not in BACKENDS:
        raise ValueError(f"backend must be one of {tuple(BACKENDS)} or None, got {name!r}")
    reason = BACKENDS[name].why_not(call) or _failure(call, name)
    if reason:
        raise ValueError(f"backend {name!r} cannot run this call: {reason}")
    return name


def fastest_backend(call: Call) -> tuple[str, tuple[str, ...]]:
    """The fastest backend that can run a call, and the reasons why those before it cannot.

    Raises:
        ValueError: none can.
    """
    refusals: list[str] = []
    for name, module in BACKENDS.items():
        reason = module.why_not(call)
        if reason is None and (reason := _failure(call, name)):
            warn_once(f"attention backend {name}", reason)
        if reason is None:
            return name, tuple(refusals)
        refusals.append(f"{name}: {reason}")
    raise ValueError("no backend can run this call; " + "; ".join(refusals))


def _failure(call: Call, name: str) -> str | None:
    """The reason why a backend's self-check fails; None where it passes, and for backends without compiled kernels."""
    self_check = getattr(BACKENDS[name], "self_check", None)
    return None if self_check is None else self_check(call)


@cache
def _announce_once(name: str, device: str, refusals: tuple[str, ...]) -> None:
    skipped = f" (skipped: {'; '.join(refusals)})" if refusals else ""
    logger.info("attention backend on %s: %s%s", device, name, skipped)
