"""Command-line options."""

import sys
from collections.abc import Callable
from typing import Any

from fairseq_poolingformer.compat.patching import replace


def apply() -> None:
    """Patch the parsing of options; see :func:`bf16_without_tpu`."""
    from fairseq import options

    replace(options, "parse_args_and_arch", bf16_without_tpu)


def bf16_without_tpu(original: Callable) -> Callable:
    """Keep ``--bf16`` from switching to TPU mode.

    fairseq sets ``args.tpu = True`` whenever ``--bf16`` is given, from the time when only TPUs had bfloat16, and then
    fails for want of torch_xla on every CPU and GPU. The trainer itself handles bfloat16 on any device. TPU mode stays
    for those who ask for it with ``--tpu``.

    Args:
        original: ``fairseq.options.parse_args_and_arch``.

    Returns:
        The function to use in its place.
    """

    def parse_args_and_arch(parser: Any, input_args: list[str] | None = None, *args: Any, **kwargs: Any) -> Any:
        parsed = original(parser, input_args, *args, **kwargs)
        namespace = parsed[0] if isinstance(parsed, tuple) else parsed
        given = sys.argv[1:] if input_args is None else input_args
        asked_for_tpu = "--tpu" in given or parser.get_default("tpu")
        if getattr(namespace, "bf16", False) and not asked_for_tpu:
            namespace.tpu = False
        return parsed

    return parse_args_and_arch
