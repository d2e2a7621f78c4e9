"""Published models and ours in training, for published.py: each side of a comparison."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Protocol
from unittest import mock

import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.trainer import Trainer
from torch import Tensor, nn
from torch.nn import functional

from fairseq_poolingformer.attention import TwoLevelAttention, Window
from fairseq_poolingformer.char_lm import from_adaptive_span as adaptive_span
from fairseq_poolingformer.char_lm import from_transformer_xl as transformer_xl
from fairseq_poolingformer.text.byte_symbols import FIRST_BYTE
from fairseq_poolingformer.text.dictionary import EOS

ROOT = Path(__file__).resolve().parents[1]


LAYERS, WIDTH, HEADS, FFN = 2, 32, 4, 64


ROWS, BLOCK = 4, 48  # rows of text, and bytes of a block


SIZES = (
    *("decoder_layers", "decoder_embed_dim", "decoder_ffn_embed_dim", "decoder_attention_heads"),
    *("max_span", "span_ramp", "memory_length", "tokens_per_sample"),
)


State = dict[str, Tensor]


class Side(Protocol):
    """A model in training."""

    def update(self, inputs: Tensor, targets: Tensor) -> float:
        """Train on a batch, (B, T) symbols and those after them; the loss in nats before the update."""

    def parameters(self) -> State:
        """The parameters by our names."""


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


class LayerSide:
    """An attention layer that learns to give some vectors.

    Args:
        layer: its module.
        attend: calls it, from (B, T, C) to (B, T, C).
        real: (B, T) bool, True at tokens, whose vectors count.
        names: our names of its submodules.
    """

    def __init__(
        self, layer: nn.Module, attend: Callable[[Tensor], Tensor], real: Tensor, names: dict[str, str]
    ) -> None:
        self.layer, self.attend, self.real, self.names = layer, attend, real, names
        self.optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-3, weight_decay=0.01)

    def update(self, inputs: Tensor, targets: Tensor) -> float:
        """See :class:`Side`."""
        self.optimizer.zero_grad()
        loss = (self.attend(inputs) - targets)[self.real].pow(2).mean()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def parameters(self) -> State:
        """See :class:`Side`."""
        return renamed(self.layer, self.names)


def renamed(layer: nn.Module, names: dict[str, str]) -> State:
    """Copies of a layer's parameters, with other names for its submodules."""
    pairs = ((name.split("."), value) for name, value in layer.state_dict().items())
    return {f"{names[module]}.{kind}": value.clone() for (module, kind), value in pairs}


LONGFORMER_NAMES = {
    f"{theirs}{end}": f"{start}{ours}_proj"
    for theirs, ours in (("query", "q"), ("key", "k"), ("value", "v"))
    for end, start in (("", ""), ("_global", "global_"))
}


def longformer_sides(clone: Path, window: int, padding: Tensor, global_mask: Tensor) -> tuple[LayerSide, LayerSide]:
    """The published layer and ours, with the same weights."""
    # modules of older transformers, of which the attention needs nothing
    stubs = {f"transformers.modeling_{name}": ModuleType(name) for name in ("roberta", "bart", "t5")}
    for stub in stubs.values():
        stub.__getattr__ = lambda name: type(name, (), {})
    with mock.patch.dict(sys.modules, stubs), imports_from(clone):
        from longformer.longformer import LongformerSelfAttention
    config = SimpleNamespace(hidden_size=WIDTH, num_attention_heads=HEADS, attention_probs_dropout_prob=0.0)
    config.attention_window, config.attention_dilation = [window], [1]
    config.attention_mode, config.autoregressive = "sliding_chunks", False
    published = LongformerSelfAttention(config, 0).double()
    nn.init.normal_(published.query.weight)  # far from equal weights
    ours = TwoLevelAttention(WIDTH, HEADS, window=Window(window), separate_global_projections=True).double()
    ours.out_proj = nn.Identity()  # theirs is in another module
    ours.load_state_dict(renamed(published, LONGFORMER_NAMES))
    mask = 10_000.0 * global_mask.double() - 10_000.0 * padding.double()

    def attend(x: Tensor) -> Tensor:
        # it asks for a softmax in float32
        with mock.patch.object(functional, "softmax", lambda y, dim, dtype=None: torch.softmax(y, dim)):
            return published(x, mask[:, None, None])[0]

    def attend_ours(x: Tensor) -> Tensor:
        return ours(x, global_mask=global_mask, key_padding_mask=padding)

    return (
        LayerSide(published, attend, ~padding, LONGFORMER_NAMES),
        LayerSide(ours, attend_ours, ~padding, {name: name for name in LONGFORMER_NAMES.values()}),
    )


def numbered(text: Tensor, order: list[int]) -> Tensor:
    """The published numbers of bytes."""
    table = torch.zeros(256, dtype=torch.long)
    table[torch.tensor(order)] = torch.arange(len(order))
    return table[text]
