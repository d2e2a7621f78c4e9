"""Command-line options."""

import sys
from collections.abc import Callable
from typing import Any


def keep_bf16_from_meaning_tpu(
    original: Callable, parser: Any, input_args: list[str] | None = None, *args: Any, **kwargs: Any
) -> Any:
    """Keep ``--bf16`` from switching to TPU mode.

    fairseq sets ``args.tpu = True`` whenever ``--bf16`` is given, from the time when only TPUs had bfloat16, and then
    fails for want of torch_xla on every CPU and GPU. The trainer itself handles bfloat16 on any device. TPU mode stays
    for those who ask for it with ``--tpu``.
    """
    parsed = original(parser, input_args, *args, **kwargs)
    namespace = parsed[0] if isinstance(parsed, tuple) else parsed
    given = sys.argv[1:] if input_args is None else input_args
    asked_for_tpu = "--tpu" in given or parser.get_default("tpu")
    if getattr(namespace, "bf16", False) and not asked_for_tpu:
        namespace.tpu = False
    return parsed


def show_help_of_arch_and_task(
    original: Callable, parser: Any, input_args: list[str] | None = None, *args: Any, **kwargs: Any
) -> Any:
    """Make ``--help`` beside ``--arch`` show the flags of that model, and of the task and the criterion.

    fairseq parses twice: first for these names, then with the flags that they add. ``--help`` ended the first time.
    Without ``--arch`` it still does.
    """
    given = {str(word).partition("=")[0] for word in (sys.argv[1:] if input_args is None else input_args)}
    if not ({"-h", "--help"} & given and {"-a", "--arch"} & given):
        return original(parser, input_args, *args, **kwargs)
    return original(parser, input_args, *args, **{**kwargs, "modify_parser": _helping_late(kwargs)})


def _helping_late(kwargs: dict[str, Any]) -> Callable[[Any], None]:
    """Return a ``modify_parser``, which fairseq calls before it parses each time: no help the first time."""
    given = kwargs.get("modify_parser")
    silenced = []

    def modify_parser(parser: Any) -> None:
        if given is not None:
            given(parser)
        if silenced:
            silenced.pop()()
            return
        print_help, leave = parser.print_help, parser.exit

        def restore() -> None:
            parser.print_help, parser.exit = print_help, leave

        silenced.append(restore)
        parser.print_help = lambda file=None: None
        parser.exit = lambda status=0, message=None: leave(status, message) if status else None

    return modify_parser
