"""Updates whose gradient is not finite: their cause is said, and ``--skip-nonfinite`` leaves some of them out."""

import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_poolingformer.checkpoint_reader.errors import CheckpointError

logger = logging.getLogger(__name__)

COUNT = "skipped_updates"  # in a checkpoint's extra state, and of the trainer
MOST_NAMES = 20  # of examples and of parameters in a message
REMEDY = (
    "Look at these examples, lower --lr, set --clip-norm, or train in bfloat16 or float32 where this is float16; "
    "--skip-nonfinite N goes on without up to N such updates"
)


class NonfiniteError(FloatingPointError):
    """A gradient that is not finite; the message says of which update, where it arises, and from which examples."""


def require_finite(path: Any, parameters: Mapping[str, Any]) -> None:
    """Refuse parameters that are NaN or infinite.

    Args:
        path: where they come from, for the message.
        parameters: by name; what is not a tensor of numbers with a point is left out.

    Raises:
        CheckpointError: one is.
    """
    for name, value in parameters.items():
        if name.endswith("_float_tensor"):
            continue  # a buffer that fairseq leaves uninitialised
        if isinstance(value, Tensor) and value.is_floating_point() and not value.sum().isfinite():
            wrong = int((~value.isfinite()).sum())  # a sum of finite numbers may overflow
            if wrong:
                raise CheckpointError(
                    f"{path}: {wrong:,} of {value.numel():,} numbers of {name} are NaN or infinite: the training had "
                    "failed when it was saved. Take an earlier checkpoint"
                )


def refuse_nonfinite_models(original: Callable, filenames: list[str], *args: Any, **kwargs: Any) -> Any:
    """Refuse to use a checkpoint whose parameters are not finite."""
    models, cfg, task = original(filenames, *args, **kwargs)
    for path, model in zip(filenames, models, strict=True):
        require_finite(path, dict(model.named_parameters()))
    return models, cfg, task


def skip_nonfinite_update(original: Callable, self: Any, grad_norm: Tensor) -> None:
    """Skip an update whose gradient is not finite, as often as ``--skip-nonfinite`` allows.

    All workers have the same sum of gradients here, so all of them skip the same updates. fairseq itself reports such a
    gradient of several workers as one that differs between them. The skipping is that of fairseq for float16: the
    OverflowError makes it drop the gradients and go on with the next batch, and the update does not count.
    """
    if self.cfg.common.amp or torch.isfinite(grad_norm).all():  # --amp has its own way with them
        return original(self, grad_norm)
    from fairseq.logging import metrics

    most, skipped = _most_skipped(self), getattr(self, COUNT, 0)
    if skipped >= most:
        spent = f", and --skip-nonfinite {most} is used up" if most else ""
        raise FloatingPointError(f"the norm of the gradient is {float(grad_norm)}{spent}")
    self.skipped_updates = skipped + 1
    metrics.log_scalar(COUNT, self.skipped_updates, weight=0, priority=600, round=0)
    raise OverflowError(f"its norm is {float(grad_norm)}")


def _most_skipped(trainer: Any) -> int:
    return getattr(getattr(trainer.task, "cfg", None), "skip_nonfinite", 0)


def save_skipped_updates(original: Callable, self: Any) -> dict[str, Any]:
    """Save the number of skipped updates: a training that was stopped and continued skips no more than others."""
    state = original(self)
    state["extra_state"][COUNT] = getattr(self, COUNT, 0)
    return state


def load_skipped_updates(
    original: Callable, self: Any, filename: str, reset_optimizer: bool = False, *args: Any, **named: Any
) -> Any:
    """Count on from the number that :func:`save_skipped_updates` saved, where the training continues."""
    extra_state = original(self, filename, reset_optimizer, *args, **named)
    if extra_state is not None and not reset_optimizer:
        self.skipped_updates = extra_state.get(COUNT, 0)
    return extra_state


def name_examples_of_nonfinite_update(
    original: Callable, self: Any, samples: list, *arguments: Any, **named: Any
) -> Any:
    """Say which update and which examples have a gradient that is not finite."""
    update, before = self.get_num_updates() + 1, getattr(self, COUNT, 0)
    try:
        result = original(self, samples, *arguments, **named)
    except NonfiniteError:  # of this function's inner call, which fairseq makes with --amp
        raise
    except FloatingPointError as error:
        raise NonfiniteError(f"update {update}: {error}. {_examples(self, samples)}. {REMEDY}") from error
    skipped = getattr(self, COUNT, 0)
    if skipped > before:
        logger.warning(
            f"update {update}: skipped, because its gradient is not finite; {skipped} of --skip-nonfinite "
            f"{_most_skipped(self)} in this training. {_examples(self, samples)}"
        )
    return result


def _examples(trainer: Any, samples: list) -> str:
    """Name the examples of the batches of one process."""
    numbers = [int(number) for sample in samples if sample and "id" in sample for number in sample["id"]]
    name = getattr(trainer.task, "example_names", lambda split, numbers: [str(number) for number in numbers])
    names = name(trainer.cfg.dataset.train_subset, numbers[:MOST_NAMES])
    more = f" and {len(numbers) - MOST_NAMES} more" if len(numbers) > MOST_NAMES else ""
    return f"Examples of process {trainer.data_parallel_rank}: {', '.join(names) or 'none'}{more}"


def find_first_nonfinite(original: Callable, model: nn.Module, *unused: Any, **also_unused: Any) -> "FirstNonfinite":
    """Look for the first value or gradient that is not finite, in place of fairseq's ``NanDetector``."""
    return FirstNonfinite(model)


class FirstNonfinite:
    """Finds where values or gradients first stop being finite, while fairseq computes an update again.

    fairseq's own ``NanDetector`` ends in a StopIteration on every model whose modules return dictionaries.

    Args:
        model: the model.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.found: str | None = None
        self.hooks = [
            module.register_forward_hook(functools.partial(self._look, name or "the model"))
            for name, module in model.named_modules()
        ]

    def __enter__(self) -> "FirstNonfinite":
        return self

    def __exit__(self, kind: type | None, *unused: Any) -> None:
        for hook in self.hooks:
            hook.remove()
        if kind is None:
            raise FloatingPointError(self.found or self._in_parameters())

    def _look(self, name: str, module: nn.Module, inputs: Any, output: Any) -> None:
        for value in _tensors(output):
            # -inf hides keys and classes in finite computations, so it is no sign of a fault
            if self.found is None and bool((value.isnan() | (value == torch.inf)).any()):
                own = [key for key, held in module.named_parameters() if not held.isfinite().all()]
                cause = f", whose parameter {own[0]} is not finite" if own else ""
                self.found = f"the first values that are not finite are the output of {name}{cause}"
            if value.requires_grad:
                value.register_hook(functools.partial(self._look_back, name))

    def _look_back(self, name: str, gradient: Tensor) -> None:
        if self.found is None and not gradient.isfinite().all():
            self.found = f"all outputs are finite; the first gradient that is not is that of the output of {name}"

    def _in_parameters(self) -> str:
        gradients = {name: p.grad for name, p in self.model.named_parameters() if p.grad is not None}
        names = [name for name, gradient in gradients.items() if not gradient.isfinite().all()]
        if not names:
            return "the gradient is not finite, but that of this process's batch alone is"
        return f"outputs and their gradients are finite, those of parameters are not: {', '.join(names[:MOST_NAMES])}"


def _tensors(value: Any) -> Iterator[Tensor]:
    """The floating-point tensors in what a module returns."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, Mapping):
        for held in value.values():
            yield from _tensors(held)
    elif isinstance(value, list | tuple):
        for held in value:
            yield from _tensors(held)


def keep_zero_where_there_is_no_gpu(original: Callable, *arguments: Any, **named: Any) -> Tensor:
    """Make a tensor that ``cuda()`` leaves where it is, on a machine without a GPU.

    fairseq's trainer puts a zero on the GPU after an overflow, even where there is none.
    """
    made = original(*arguments, **named)
    return made if torch.cuda.is_available() else made.as_subclass(_OnCPU)


class _OnCPU(Tensor):
    def cuda(self, *unused: Any, **also_unused: Any) -> Tensor:
        """The same values as an ordinary tensor."""
        return self.as_subclass(Tensor)
