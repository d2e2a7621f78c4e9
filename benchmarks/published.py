"""Published models beside ours: the same weights, batches, optimizer and schedule, update by update.

    python benchmarks/published.py [--adaptive-span CLONE] [--transformer-xl CLONE] [--longformer CLONE] [--updates 40]

A CLONE is a folder with facebookresearch/adaptive-span, kimiyoung/transformer-xl or allenai/longformer. Its code is
imported from there and trains with its own optimizer and schedule; ours has the published weights, copied by the
converters, and is trained by fairseq's trainer with the flags of run_scripts/char_lm. Everything is in float64, without
dropout, on a text with a memory that goes from batch to batch. The table says how far the two are apart after the last
update, and how far the parameters have moved, without which it would say nothing.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from unittest import mock

import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.trainer import Trainer
from torch import Tensor

from fairseq_poolingformer.models.conversion import adaptive_span, transformer_xl
from fairseq_poolingformer.text.byte_symbols import FIRST_BYTE
from fairseq_poolingformer.text.dictionary import EOS

ROOT = Path(__file__).resolve().parents[1]
LAYERS, WIDTH, HEADS, FFN = 2, 32, 4, 64
ROWS, BLOCK = 4, 48  # rows of text, and bytes of a block
SIZES = (
    *("decoder_layers", "decoder_embed_dim", "decoder_ffn_embed_dim", "decoder_attention_heads"),
    *("max_span", "span_ramp", "memory_length", "tokens_per_sample"),
)
# Vectors of distances, some of which no head sees. The published code adds 1e-8 to the sum that it divides weights by,
# which gives those a gradient of that size, and Adagrad makes whole steps of it.
UNSEEN = "decoder.positions.weight"
State = dict[str, Tensor]


class Side(Protocol):
    """A model in training."""

    def update(self, inputs: Tensor, targets: Tensor) -> float:
        """Train on a batch, (B, T) symbols and those after them; the loss in nats before the update."""

    def parameters(self) -> State:
        """The parameters by our names."""


class Row(NamedTuple):
    """A line of the table.

    Args:
        name: of the case.
        updates: how many there were.
        first_loss, last_loss: the published model's, in nats.
        loss: the greatest difference of a loss of any update.
        parameters: the greatest difference of a parameter after the last, but for ``UNSEEN``.
        unseen: the same of those.
        moved: the greatest difference between a parameter before and after the training.
    """

    name: str
    updates: int
    first_loss: float
    last_loss: float
    loss: float
    parameters: float
    unseen: float
    moved: float


def compare(name: str, published: Side, ours: Side, batches: Sequence[tuple[Tensor, Tensor]]) -> Row:
    """Train both on the same batches."""
    before = {key: value.clone() for key, value in published.parameters().items()}
    losses = [(published.update(*batch), ours.update(*batch)) for batch in batches]
    theirs, own = published.parameters(), ours.parameters()
    return Row(
        name,
        len(batches),
        losses[0][0],
        losses[-1][0],
        max(abs(a - b) for a, b in losses),
        _distance(theirs, own, without=UNSEEN),
        _distance(theirs, own) if UNSEEN in theirs else 0.0,
        _distance(theirs, before),
    )


def _distance(first: State, second: State, without: str = "") -> float:
    """The greatest difference of a parameter; both have the same ones."""
    if first.keys() != second.keys():
        raise ValueError(f"parameters differ: {sorted(first.keys() ^ second.keys())}")
    return max(float((value - second[name]).abs().max()) for name, value in first.items() if name != without)


@contextmanager
def imports_from(folder: Path) -> Iterator[None]:
    """Import modules from a folder first, under their top-level names, and forget those names afterwards."""
    names = {path.stem for path in folder.iterdir()}
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] in names}
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.split(".")[0] in names]:
            del sys.modules[name]
        sys.modules.update(hidden)


class Ours:
    """A character model in fairseq's trainer.

    Args:
        settings: those of the converter, which say how large the model is.
        state: its parameters at the start.
        flags: of fairseq-train, for the optimizer and the schedule.
    """

    def __init__(self, settings: dict[str, Any], state: State, *flags: str) -> None:
        sizes = {f"--{name.replace('_', '-')}": settings[name] for name in SIZES if settings.get(name)}
        none = ("--dropout", "--attention-dropout", "--activation-dropout")
        arguments = ["text", "--user-dir", str(ROOT / "fairseq_poolingformer"), "--task", "char_lm", "--cpu"]
        arguments += ["--criterion", "char_lm", "--arch", settings["arch"], "--batch-size", str(ROWS), *flags]
        arguments += [str(word) for pair in [*sizes.items(), *((name, 0) for name in none)] for word in pair]
        if settings["arch"].startswith("transformer_xl"):
            arguments += ["--position-dropout", "0"]
        args = options.parse_args_and_arch(options.get_training_parser(), arguments)
        cfg = convert_namespace_to_omegaconf(args)
        task = tasks.setup_task(cfg.task)
        self.model = task.build_model(cfg.model).double()
        self.model.load_state_dict({name: value.double() for name, value in state.items()})
        criterion = task.build_criterion(cfg.criterion)
        criterion.register_forward_hook(self._remember)
        self.trainer = Trainer(cfg, task, self.model, criterion)
        self.trainer.clip_grad_norm = self._clip
        self.position, self.nll = 0, 0.0

    def _clip(self, most: float) -> Tensor:
        """Clip gradients as fairseq does, which takes their norm in float32 and refuses those in float64."""
        return torch.nn.utils.clip_grad_norm_(self.model.parameters(), most or float("inf"))

    def _remember(self, criterion: Any, inputs: Any, outputs: tuple[Tensor, int, dict[str, Any]]) -> None:
        """Keep the mean loss in nats; what fairseq logs is rounded."""
        _, count, logged = outputs
        self.nll = float(logged["nll"]) / count

    def update(self, inputs: Tensor, targets: Tensor) -> float:
        """See :class:`Side`."""
        sample = {
            "id": torch.arange(len(inputs)),
            "net_input": {"src_tokens": FIRST_BYTE + inputs},
            "target": FIRST_BYTE + targets,
            "ntokens": inputs.numel(),
            "nsentences": len(inputs),
            "position": self.position,
            "continues": self.position > 0,
            "goes_on": True,
        }
        self.position += inputs.size(1)
        with metrics.aggregate(new_root=True):
            self.trainer.train_step([sample])
        return self.nll

    def parameters(self) -> State:
        """See :class:`Side`."""
        self.model.set_num_updates(self.trainer.get_num_updates())  # moves spans back into their interval
        return used({name: value.detach().clone() for name, value in self.model.state_dict().items()})


def used(state: State) -> State:
    """Parameters with zeros for ``</s>``, whose row the converters make for the beginning of a text: it is not read."""
    for name in ("decoder.embed_tokens.weight", "decoder.output_projection.weight"):
        state[name][EOS] = 0.0
    return state


class PublishedAdaptiveSpan:
    """facebookresearch/adaptive-span, as its trainer.py trains.

    Args:
        clone: its folder.
        order: the bytes of the text, in the order in which its model numbers them.
        max_span, start, ramp, span_loss, lr, warmup, clip: its options.
    """

    def __init__(
        self,
        clone: Path,
        order: list[int],
        *,
        max_span: int,
        start: float,
        ramp: int,
        span_loss: float,
        lr: float,
        warmup: int,
        clip: float,
    ) -> None:
        with imports_from(clone):
            import adagrad_with_grad_clip
            import models
            import trainer
        self.train_iteration, self.order, self.ramp = trainer.train_iteration, order, ramp
        spans = {
            "adapt_span_enabled": True,
            "adapt_span_loss": span_loss,
            "adapt_span_ramp": ramp,
            "adapt_span_init": start,
            "adapt_span_cache": True,
        }
        model = models.TransformerSeq(
            vocab_size=len(order),
            hidden_size=WIDTH,
            inner_hidden_size=FFN,
            nb_heads=HEADS,
            nb_layers=LAYERS,
            attn_span=max_span,
            dropout=0.0,
            emb_dropout=0.0,
            adapt_span_params=spans,
            pers_mem_params={"pers_mem_size": 0},
            adapt_io_params={"adapt_io_enabled": False},
        ).double()
        self.model = torch.nn.Module()  # as data parallelism wraps it
        self.model.module, self.model.forward = model, model.forward
        self.optimizer = adagrad_with_grad_clip.AdagradWithGradClip(model.parameters(), lr=lr, grad_clip=clip)
        self.optimizer.grad_clip = 0  # as its utils.py says: the optimizer clips
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1, step / warmup))
        self.cache = [
            torch.zeros(ROWS, layer.attn.attn.get_cache_size(), WIDTH, dtype=torch.float64) for layer in model.layers
        ]

    def update(self, inputs: Tensor, targets: Tensor) -> float:
        """See :class:`Side`."""
        data = numbered(torch.cat([inputs, targets[:, -1:]], 1), self.order)
        length = inputs.size(1)
        data = torch.cat([data, data[:, :1].expand(-1, length)], 1)  # else it would take the text to end here
        loss, _, self.cache = self.train_iteration(
            self.model, self.optimizer, self.scheduler, data, 1, length, False, 0, self.cache, 1
        )
        return loss

    def parameters(self) -> State:
        """See :class:`Side`."""
        return used(self.converted()[1])

    def converted(self) -> tuple[dict[str, Any], State]:
        """Settings and parameters by our converter."""
        state = {name: value.detach().clone() for name, value in self.model.module.state_dict().items()}
        return adaptive_span.to_fairseq(state, [FIRST_BYTE + byte for byte in self.order], span_ramp=self.ramp)


@contextmanager
def float64() -> Iterator[None]:
    """Let Transformer-XL's code, which asks for float32 in places, compute in float64, with masks that torch takes."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with mock.patch.multiple(torch.Tensor, float=torch.Tensor.double, byte=torch.Tensor.bool):
            yield
    finally:
        torch.set_default_dtype(before)


class PublishedTransformerXL:
    """kimiyoung/transformer-xl, pytorch/, as its train.py trains.

    Args:
        clone: its folder.
        order: the bytes of the text, in the order in which its model numbers them.
        memory: positions of its memory.
        lr, clip, updates: its options; the cosine ends after so many updates.
    """

    def __init__(self, clone: Path, order: list[int], *, memory: int, lr: float, clip: float, updates: int) -> None:
        # it looks for CUDA's version when it is imported
        with imports_from(clone / "pytorch"), mock.patch.object(torch.version, "cuda", torch.version.cuda or "0.0"):
            sys.path.insert(0, str(clone / "pytorch" / "utils"))
            try:
                import mem_transformer
            finally:
                sys.path.remove(str(clone / "pytorch" / "utils"))
        sizes = {"n_layer": LAYERS, "n_head": HEADS, "d_model": WIDTH, "d_head": WIDTH // HEADS, "d_inner": FFN}
        lengths = {"tgt_len": BLOCK, "ext_len": 0, "mem_len": memory}
        with float64():
            self.model = mem_transformer.MemTransformerLM(len(order), **sizes, **lengths, dropout=0.0, dropatt=0.0)
        for name, parameter in self.model.named_parameters():  # as its weights_init
            is_gain = "layer_norm.weight" in name
            torch.nn.init.normal_(parameter, float(is_gain), 0.0 if name.endswith(".bias") else 0.02)
        self.order, self.clip, self.memory, self.number = order, clip, (), 0
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, updates, eta_min=0.0)
        self.attended = memory

    def update(self, inputs: Tensor, targets: Tensor) -> float:
        """See :class:`Side`."""
        self.model.zero_grad()
        inputs, targets = (numbered(x, self.order).t().contiguous() for x in (inputs, targets))
        with float64():
            losses, *self.memory = self.model(inputs, targets, *self.memory)
        loss = losses.mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.number += 1
        self.scheduler.step(self.number)
        return loss.item()

    def parameters(self) -> State:
        """See :class:`Side`."""
        return used(self.converted()[1])

    def converted(self) -> tuple[dict[str, Any], State]:
        """Settings and parameters by our converter."""
        state = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        order = [FIRST_BYTE + byte for byte in self.order]
        return transformer_xl.to_fairseq(state, order, memory_length=self.attended)


def numbered(text: Tensor, order: list[int]) -> Tensor:
    """The published numbers of bytes."""
    table = torch.zeros(256, dtype=torch.long)
    table[torch.tensor(order)] = torch.arange(len(order))
    return table[text]


def text() -> Tensor:
    """(ROWS, n) bytes of this project's documents."""
    whole = b"".join(path.read_bytes() for path in sorted((ROOT / "docs").glob("*.md")))
    values = torch.frombuffer(bytearray(whole), dtype=torch.uint8).long()
    return values[: len(values) // ROWS * ROWS].view(ROWS, -1)


def batches(rows: Tensor, number: int) -> list[tuple[Tensor, Tensor]]:
    """Consecutive blocks of every row, and the bytes after theirs.

    Raises:
        ValueError: the text is too short.
    """
    most = (rows.size(1) - 1) // BLOCK
    if number > most:
        raise ValueError(f"--updates must be at most {most:,}, where the text ends; got {number:,}")
    starts = range(0, number * BLOCK, BLOCK)
    return [(rows[:, i : i + BLOCK], rows[:, i + 1 : i + BLOCK + 1]) for i in starts]


def adaptive_span_rows(clone: Path, updates: int) -> Iterator[Row]:
    """Spans that begin at 0, as published; and spans that begin in the middle and move far, both ways."""
    rows = text()
    order = rows.unique().tolist()
    for name, start, span_loss, warmup in (("spans begin at 0", 0.0, 2e-6, 8000), ("spans move far", 0.12, 0.0, 400)):
        torch.manual_seed(0)
        options = {"max_span": 256, "start": start, "ramp": 32, "span_loss": span_loss}
        options |= {"lr": 0.07, "warmup": warmup, "clip": 0.03}
        published = PublishedAdaptiveSpan(clone, order, **options)
        flags = ("--optimizer", "clipped_adagrad", "--parameter-clip-norm", "0.03", "--clip-norm", "0", "--lr", "0.07")
        flags += ("--lr-scheduler", "staged", "--warmup-updates", str(warmup), "--span-loss", str(span_loss))
        ours = Ours(*published.converted(), *flags)
        yield compare(f"adaptive span: {name}", published, ours, batches(rows, updates))


def transformer_xl_rows(clone: Path, updates: int) -> Iterator[Row]:
    """A memory as long as a block, and one that is longer."""
    rows = text()
    order = rows.unique().tolist()
    for memory in (BLOCK, 2 * BLOCK):
        torch.manual_seed(0)
        published = PublishedTransformerXL(clone, order, memory=memory, lr=2.5e-4, clip=0.25, updates=updates)
        flags = ("--optimizer", "fused_adamw", "--weight-decay", "0", "--lr", "2.5e-4", "--clip-norm", "0.25")
        flags += ("--lr-scheduler", "cosine", "--max-update", str(updates))
        ours = Ours(*published.converted(), *flags)
        yield compare(f"Transformer-XL: memory of {memory}", published, ours, batches(rows, updates))


CASES: dict[str, Callable[[Path, int], Iterator[Row]]] = {
    "adaptive_span": adaptive_span_rows,
    "transformer_xl": transformer_xl_rows,
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in CASES:
        result.add_argument(f"--{name.replace('_', '-')}", type=Path, metavar="CLONE", help="folder of its code")
    result.add_argument("--updates", type=int, default=40, metavar="N", help="(default: %(default)s)")
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, and print the table."""
    command = parser()
    args = command.parse_args(arguments)
    clones = {name: getattr(args, name) for name in CASES if getattr(args, name)}
    if not clones:
        command.error("give at least one clone: " + ", ".join(f"--{name.replace('_', '-')}" for name in CASES))
    for name, clone in clones.items():
        if not clone.is_dir():
            command.error(f"--{name.replace('_', '-')} {clone} is not a folder")
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")  # of calls that are older than this torch
    heads = ("", "updates", "loss, nats", "losses differ by", "parameters", "distances", "parameters moved by")
    print("|", " | ".join(heads), "|\n" + "|---" * len(heads) + "|")
    for name, clone in clones.items():
        for row in CASES[name](clone, args.updates):
            loss = f"{row.first_loss:.3f} → {row.last_loss:.3f}"
            numbers = f"{row.loss:.0e} | {row.parameters:.0e} | {row.unseen:.0e} | {row.moved:.2g}"
            print(f"| {row.name} | {row.updates} | {loss} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
