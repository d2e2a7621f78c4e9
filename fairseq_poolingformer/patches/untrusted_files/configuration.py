"""A checkpoint's configuration is data: no code runs from it.

fairseq evaluates strings of a model's configuration as Python, such as ``--encoder-layers "[(512, 3)] * 20"`` of fconv
or ``--adaptive-softmax-cutoff``, and a checkpoint carries its configuration along. Three measures:

- ``eval`` in fairseq's modules is replaced by :func:`literal`, which reads the same strings and runs nothing;
- a checkpoint may name models, tasks and criterions of this plugin, of the ``--user-dir``, and fairseq's for text.
  Others (for speech, and whatever reads more files when it is built) are refused;
- of its options only those are used that :mod:`.own_options` and :mod:`.option_schema` allow.
"""

import ast
import sys
from collections.abc import Mapping
from typing import Any

from fairseq_poolingformer.checkpoint_reader.option_schema import ConfigurationError, entry

# modules of fairseq whose models and tasks build nothing but layers and dictionaries from a configuration
MODELS = ("bart", "camembert", "fconv", "fconv_lm", "lightconv", "lightconv_lm", "lstm", "lstm_lm", "masked_lm")
MODELS += ("multilingual_transformer", "nat", "roberta", "transformer", "transformer_align", "transformer_lm", "xmod")
TASKS = ("cross_lingual_lm", "denoising", "language_modeling", "legacy_masked_lm", "masked_lm")
TASKS += ("multilingual_denoising", "multilingual_language_modeling", "multilingual_masked_lm")
TASKS += ("multilingual_translation", "semisupervised_translation", "sentence_prediction", "sentence_ranking")
TASKS += ("span_masked_lm", "translation", "translation_from_pretrained_bart", "translation_from_pretrained_xlm")
TASKS += ("translation_lev", "translation_multi_simple_epoch")
CRITERIONS = ("adaptive_loss", "cross_entropy", "label_smoothed_cross_entropy", "legacy_masked_lm", "masked_lm")
CRITERIONS += ("label_smoothed_cross_entropy_with_alignment", "nat_loss", "sentence_prediction", "sentence_ranking")
CRITERIONS += ("label_smoothed_cross_entropy_with_rdrop",)

# names in old checkpoints that fairseq replaces
FORMER_NAMES = {"speech_pretraining": "audio_pretraining", "audio_cpc": "wav2vec"}
FORMER_NAMES |= dict.fromkeys(("binary_cross_entropy", "kd_binary_cross_entropy"), "wav2vec")

LARGEST = 100_000  # characters of a string, and items of a list, that are read in a configuration


def apply() -> None:
    """Replace ``eval`` in fairseq's modules."""
    from fairseq import checkpoint_utils, criterions, models, optim, tasks  # noqa: F401  (loads the modules)

    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "fairseq" and module is not None:
            vars(module).setdefault("eval", literal)


def literal(text: Any) -> Any:
    """Read a Python literal, in which lists may also be added and repeated: ``"[(512, 3)] * 20 + [(8, 1)]"``.

    Args:
        text: the literal; anything but a string is returned as it is.

    Returns:
        Its value.

    Raises:
        ConfigurationError: the text is no such literal, or describes a value beyond :data:`LARGEST`.
    """
    if not isinstance(text, str):
        return text
    try:
        if len(text) > LARGEST:
            raise ValueError(f"{len(text)} characters")
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise ConfigurationError(
            f"{text[:200]!r} is not a number, text, list or tuple; nothing else is read in a configuration"
        ) from error


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        for sequence, count in ((left, right), (right, left)):
            if isinstance(sequence, list | tuple | str) and isinstance(count, int):
                if len(sequence) * count > LARGEST:
                    raise ValueError(f"{len(sequence) * count} items")
                return sequence * count
        return left * right
    if isinstance(node, ast.List | ast.Tuple):
        values = [_value(element) for element in node.elts]
        return values if isinstance(node, ast.List) else tuple(values)
    return ast.literal_eval(node)


def check_configuration(state: Mapping[str, Any]) -> None:
    """Refuse a checkpoint that names a model, a task or a criterion beyond those a checkpoint may name.

    Args:
        state: a checkpoint as fairseq saves it.

    Raises:
        ConfigurationError: it does.
    """
    from fairseq import criterions, models, tasks

    configuration, arguments = state.get("cfg") or {}, state.get("args")
    for kind, option, registries, allowed in (
        ("model", "arch", (models.MODEL_REGISTRY, models.ARCH_MODEL_REGISTRY), MODELS),
        ("task", "task", (tasks.TASK_REGISTRY,), TASKS),
        ("criterion", "criterion", (criterions.CRITERION_REGISTRY,), CRITERIONS),
    ):
        part = configuration.get(kind) if isinstance(configuration, Mapping) else None
        names = {entry(part, "_name"), entry(part, option), entry(arguments, option)}
        for name in {FORMER_NAMES.get(name, name) for name in names - {None}}:
            found = next((registry[name] for registry in registries if name in registry), None)
            if found is not None and not _may_be_named(found, f"fairseq.{kind}s", allowed):
                raise ConfigurationError(
                    f"its {kind} is {name!r}, and here checkpoints may name only this plugin's and fairseq's for "
                    "text. If you trust the file, use it in a process without this plugin"
                )


def _may_be_named(found: type, package: str, allowed: tuple[str, ...]) -> bool:
    module = found.__module__
    return not module.startswith("fairseq.") or any(
        module == f"{package}.{name}" or module.startswith(f"{package}.{name}.") for name in allowed
    )
