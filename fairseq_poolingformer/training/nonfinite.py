"""Outputs that are not finite."""

from torch import Tensor


class NonfiniteError(ValueError):
    """Numbers that are not finite; no FloatingPointError, after which fairseq would compute the update again."""


def require_finite_output(output: Tensor, name: str) -> None:
    """Refuse what a part of a model gave in evaluation where it is not finite: a search would end in an assertion."""
    if not output.isfinite().all():
        raise NonfiniteError(
            f"the outputs of {name} are NaN or infinite, and nothing before it: its weights are too large for "
            f"{str(output.dtype).removeprefix('torch.')}. Take an earlier checkpoint, or float32 where this is float16"
        )
