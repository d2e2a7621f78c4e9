"""Command-line options, ``--user-dir`` among them."""

import ast
import sys
from collections.abc import Callable
from typing import Any

LEAST = {  # of options that are numbers; fairseq takes any, and ends in an error elsewhere or does nothing
    **dict.fromkeys(("batch_size", "batch_size_valid", "max_tokens", "max_tokens_valid", "update_freq"), 1),
    **dict.fromkeys(("log_interval", "save_interval", "validate_interval", "required_batch_size_multiple"), 1),
    **dict.fromkeys(("save_interval_updates", "validate_interval_updates", "max_update", "max_epoch", "clip_norm"), 0),
    **dict.fromkeys(("beam", "nbest", "max_len_b", "num_shards", "distributed_world_size"), 1),
    **dict.fromkeys(("num_workers", "min_len", "no_repeat_ngram_size", "shard_id", "warmup_updates"), 0),
    **dict.fromkeys(("encoder_layers", "encoder_attention_heads", "encoder_embed_dim", "encoder_ffn_embed_dim"), 1),
    **dict.fromkeys(("decoder_layers", "decoder_attention_heads", "decoder_embed_dim", "decoder_ffn_embed_dim"), 1),
    **dict.fromkeys(("max_source_positions", "max_target_positions", "max_positions"), 3),  # <s>, a token, </s>
    "block_tokens": 3,
    **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout", "relu_dropout", "lr"), 0),
}
MOST = {name: 1 for name in LEAST if name.endswith("dropout")}


def refuse_numbers_out_of_bounds(
    original: Callable, parser: Any, input_args: list[str] | None = None, *args: Any, **kwargs: Any
) -> Any:
    """Refuse numbers that an option cannot have, and a training without ``--arch``; print no usage of 150 lines."""
    parser.print_usage = lambda file=None: None  # which argparse puts before an error
    say = parser.error

    def say_briefly(message: str) -> None:
        from fairseq_poolingformer.cli.command import with_similar_names  # which a training does not need

        say(with_similar_names(message, parser._option_string_actions))

    parser.error = say_briefly
    try:
        parsed = original(parser, input_args, *args, **kwargs)
    except RuntimeError as error:
        if str(error):
            raise
        raise ValueError("give --arch, the model to train, such as poolingformer_bart_large") from None
    check(parsed[0] if isinstance(parsed, tuple) else parsed)
    return parsed


def check(options: Any) -> None:
    """Raise ValueError, with the flag, where a number is out of its bounds.

    Args:
        options: a namespace.
    """
    for name, value in vars(options).items():
        flag, least, most = f"--{name.replace('_', '-')}", LEAST.get(name), MOST.get(name)
        for number in value if isinstance(value, list) else [value]:
            if least is None or isinstance(number, bool) or not isinstance(number, int | float):
                continue
            if not number >= least:
                raise ValueError(f"{flag} must be {least} or more, got {number}")
            if most is not None and number > most:
                raise ValueError(f"{flag} must be {most} or less, got {number}")
    if getattr(options, "adam_betas", None) is not None:
        parse_betas(options.adam_betas)


def parse_betas(betas: Any) -> tuple[float, float]:
    """The two decay rates from an option's text or from a sequence.

    Raises:
        ValueError: they are not two numbers in [0, 1).
    """
    try:
        first, second = ast.literal_eval(betas) if isinstance(betas, str) else betas
        if 0 <= first < 1 and 0 <= second < 1:
            return float(first), float(second)
    except (SyntaxError, TypeError, ValueError):
        pass
    raise ValueError(f"--adam-betas must be two numbers in [0, 1), such as '(0.9, 0.98)'; got {betas!r}")


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
    given = {word.split("=")[0] for word in (sys.argv[1:] if input_args is None else input_args)}
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


def import_no_file_of_this_plugin(original: Callable, folder: str, namespace: str) -> None:
    """Keep ``--user-dir`` from importing every file of this plugin's ``models/`` and ``tasks/``."""
    if namespace.partition(".")[0] != __package__.partition(".")[0]:
        original(folder, namespace)
