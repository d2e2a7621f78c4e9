"""One document over the processes of a group, for transformers' models."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as distributed
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import ModelOutput

from fairseq_poolingformer.attention import DropoutAt, Window, band_attention
from fairseq_poolingformer.attention.dropout import dropout_seed
from fairseq_poolingformer.attention.sharding import GroupRanks, Ranks, Shard, merged_over_ranks
from fairseq_poolingformer.attention.sharding.exchange import gather
from fairseq_poolingformer.attention.sharding.ranks import telling
from fairseq_poolingformer.huggingface.bart import OffsetPositions, Seq2SeqDecoder
from fairseq_poolingformer.huggingface.encoders import Head, LabelHead
from fairseq_poolingformer.huggingface.padding import Rows
from fairseq_poolingformer.models.context_parallel import ContextParallel

BY_TOKEN = ("input_ids", "inputs_embeds", "token_type_ids", "position_ids")  # (B, T, …)
MASKS = ("attention_mask", "global_attention_mask")
MERGED = "poolingformer_merged"  # the name of merged_attention


@contextmanager
def context_parallel(model: nn.Module, cp_group: Any = None) -> Iterator[None]:
    """Divide every document among processes while forward and backward passes run.

    All ranks get the same whole batch. Each runs the encoder on its part of the columns; then the features of all parts
    go to every rank, where the head, or T5's decoder, goes on. Other decoders run on every rank, attend to its own part
    and merge what all ranks find; a head over a vocabulary computes ``logits`` (B, T of the part, V). In both cases
    features are of the part, in rows whose real tokens come first. ``loss`` is this rank's share: losses, and gradients
    of parameters, are to be added over the ranks, so multiply by cp_size where DDP or FSDP averages; share a loss of
    your own likewise. An error in the block ends the other ranks.

    accelerate's ``ParallelismConfig(cp_size=…)`` does not fit, whose hooks make attention causal and drop its masks;
    give every rank of the group the same batch in your own loop, with the group ``device_mesh["cp"]``.

    Args:
        model: a model of this package, or one around it, such as DDP's.
        cp_group: a group of torch.distributed or a device mesh of one dimension; None for all processes.

    Raises:
        ValueError: the model has no encoder of this package.
    """
    ranks = _ranks(cp_group)
    encoders = [m for m in model.modules() if hasattr(type(m), "layout") and not getattr(m, "is_decoder", False)]
    if not encoders:
        raise ValueError(f"{type(model).__name__} has no Poolingformer's encoder, and others cannot be divided")
    division = ContextParallel(ranks)
    heads = [m for m in model.modules() if isinstance(m, Head)]
    decoders = [m for m in model.modules() if isinstance(m, Seq2SeqDecoder) and ranks is not None]
    shares = not any(map(_has_vocabulary, heads))
    with ExitStack() as stack, telling(ranks):
        for encoder in encoders:
            encoder.divided = divided = _Divided(encoder, division, shares and not decoders)
            stack.callback(delattr, encoder, "divided")
            stack.enter_context(encoder.register_forward_pre_hook(divided.before, with_kwargs=True))
        for decoder in decoders:
            stack.callback(setattr, decoder.config, "_attn_implementation", decoder.config._attn_implementation)
            decoder.config._attn_implementation = MERGED
            stack.enter_context(decoder.register_forward_pre_hook(divided.before_decoder, with_kwargs=True))
        for head in heads:
            if shares:
                stack.enter_context(head.register_forward_hook(_share_of(1 if ranks is None else ranks.size)))
            else:
                hook = _OwnLabels(division)
                stack.enter_context(head.register_forward_pre_hook(hook, with_kwargs=True))
        yield


def _ranks(group: Any) -> Ranks | None:
    if hasattr(group, "swap"):
        return group
    if group is None and not (distributed.is_available() and distributed.is_initialized()):
        return None
    return GroupRanks(group.get_group() if hasattr(group, "get_group") else group)


def _has_vocabulary(head: nn.Module) -> bool:
    """Whether a head's outputs are as many as the words of a vocabulary, for every token of the document."""
    return isinstance(head, LabelHead) and head.get_output_embeddings() is not None


@dataclass
class _Divided:
    """Runs transformers' forward pass of an encoder on this rank's part."""

    encoder: PreTrainedModel
    division: ContextParallel
    whole: bool
    shard: Shard | None = None

    def before(self, encoder: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """Have all ranks draw the same random positions; rows whose results stay parts begin with their real tokens."""
        if encoder.config.random_position_offsets:
            self._seed()
        return (args, kwargs) if self.whole else ((), _moved(encoder, args, kwargs))

    def before_decoder(
        self, decoder: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple, dict[str, Any]]:
        """Have the decoder attend to this rank's part of the source; each beam of a row is another row here."""
        source, shard = kwargs.get("encoder_hidden_states"), self.shard
        if source is None or shard is None or source.size(1) != len(shard.part):
            raise ValueError("the decoder needs this rank's part of the features that the encoder has just computed")
        self._seed()  # for dropout: all ranks must have the same queries
        hidden = source.new_zeros(source.shape[:2], dtype=torch.bool)
        if shard.padding is not None:
            hidden = shard.padding.repeat_interleave(len(source) // len(shard.padding), 0)
        mask = ~hidden[:, None, None]
        mask.shard = shard
        return args, kwargs | {"encoder_attention_mask": mask}

    def _seed(self) -> None:
        """Have all ranks' generators draw the same numbers."""
        ranks = self.division.ranks
        if ranks is not None and self.encoder.training:
            own = torch.tensor([dropout_seed()], device=self.encoder.device)
            torch.manual_seed(int(gather(ranks, own, [1] * ranks.size)[0]))

    def __call__(
        self,
        forward: Callable[..., BaseModelOutput],
        attention_mask: Tensor | dict[str, Tensor],
        output_attentions: bool | None = None,
        **inputs: Any,
    ) -> BaseModelOutput:
        if output_attentions:
            raise ValueError("a divided document's attention weights are on no rank: leave out output_attentions")
        by_type = attention_mask if isinstance(attention_mask, dict) else {"": attention_mask}
        masks = next(iter(by_type.values()))
        columns, wide = masks.size(-1), self.division.widened
        padding = wide(masks[:, 1, 0] if masks.size(1) == 2 else torch.zeros_like(masks[:, 0, 0]), True)
        shard = self.shard = replace(self.division.shard(padding, wide(masks[:, 0, 0])), equal_seeds=False)
        inputs |= {name: wide(x) for name, x in inputs.items() if name in BY_TOKEN}
        cut = {name: _part_of(x, shard) for name, x in inputs.items() if name in BY_TOKEN}
        if hasattr(self.encoder, "with_pools"):
            cut["position_ids"] = self._with_pools(inputs["position_ids"], padding, shard)
        own = {kind: _marked(shard, masks, kind != "sliding_attention") for kind in by_type}
        with self._places(shard):
            output = forward(attention_mask=own if isinstance(attention_mask, dict) else own[""], **(inputs | cut))
        return self._joined(output, shard, columns) if self.whole else output

    def _with_pools(self, positions: Tensor, padding: Tensor, shard: Shard) -> Tensor:
        """Return the positions of the part's tokens and pools, and the greatest of all, which some rope types need."""
        found = self.encoder.with_pools(positions, padding if padding.any() else None)
        pools = [] if self.encoder.pooling is None else shard.pools(self.encoder.pooling)
        greatest = found[:, : shard.length].max().expand(len(found), 1)
        return torch.cat([found[:, [*shard.part, *(shard.length + pool for pool in pools)]], greatest], 1)

    def _joined(self, output: BaseModelOutput, shard: Shard, columns: int) -> BaseModelOutput:
        """Return the output of whole documents."""

        def joined(x: Tensor) -> Tensor:
            return shard.joined(x, 1)[:, :columns]

        output.last_hidden_state = joined(output.last_hidden_state)
        if output.hidden_states is not None:
            output.hidden_states = tuple(map(joined, output.hidden_states))
        if output.get("pooler_output") is not None:  # of the part's first token
            output.pooler_output = self.encoder.pooler(output.last_hidden_state)
        return output

    @contextmanager
    def _places(self, shard: Shard) -> Iterator[None]:
        """Have BART's kin embed the positions of the part, which their forward pass does not take as an argument."""
        table = getattr(self.encoder, "embed_positions", None)
        if table is None:
            yield
        elif isinstance(table, OffsetPositions) and table.training:
            # at random places, which depend on the whole length
            whole = table.register_forward_pre_hook(lambda _, given: given[0][:, :1].expand(-1, shard.length))
            with whole, table.register_forward_hook(lambda _, given, places: _part_of(places, shard)):
                yield
        else:
            place = {"past_key_values_length": shard.part.start}
            with table.register_forward_pre_hook(lambda _, given, named: (given, named | place), with_kwargs=True):
                yield


def _part_of(x: Tensor | None, shard: Shard) -> Tensor | None:
    """The columns of a shard of (B or 1, T, …)."""
    return None if x is None else x[:, shard.part.start : shard.part.stop]


def _marked(shard: Shard, masks: Tensor, with_global: bool) -> Tensor:
    """Masks for the layers, which find the shard in them."""
    found = masks.new_empty(masks.size(0), 0, 1, len(shard.part))
    found.shard = shard if with_global else replace(shard, tokens=None, _made={})
    return found


def _moved(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a forward pass by name, with each row's real tokens first."""
    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    given |= given.pop("kwargs", {})
    moved = Rows.of(given.get("attention_mask")).moved
    return given | {name: moved(x) for name, x in given.items() if name in (*BY_TOKEN, *MASKS, "labels")}


def merged_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend for transformers to a source of which each rank has a part; to other keys as ``sdpa`` does."""
    shard = getattr(attention_mask, "shard", None)
    if shard is None:
        arguments = {"dropout": dropout, "scaling": scaling, **kwargs}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **arguments)
    out, lse = band_attention(
        query,
        key,
        value,
        window=Window.unlimited(),
        key_padding_mask=~attention_mask[:, 0, 0],
        scale=scaling,
        dropout_p=dropout,
        dropout_at=DropoutAt(dropout_seed(), key=shard.part.start) if dropout else None,
        return_lse=True,
    )
    return merged_over_ranks(shard.ranks, out, lse)[0].to(query.dtype).transpose(1, 2), None


def _share_of(size: int) -> Callable[..., ModelOutput]:
    """Return a hook: every rank has computed the loss of whole documents, which then is added over the ranks."""

    def share(head: nn.Module, given: Any, output: ModelOutput) -> ModelOutput:
        if isinstance(output, tuple):
            raise ValueError("a divided document's outputs have names: leave out return_dict=False")
        if output.get("loss") is not None:
            output.loss = output.loss / size
        return output

    return share


@dataclass(frozen=True)
class _OwnLabels:
    """A hook before a head over a vocabulary: the labels of this rank's part, and how many the whole batch has."""

    division: ContextParallel

    def __call__(self, head: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        given = _moved(head, args, kwargs)
        if (labels := given.get("labels")) is not None:
            if given.get("num_items_in_batch") is None:
                given["num_items_in_batch"] = labels.ne(-100).sum()
            given["labels"] = self.division.own(labels, -100).contiguous()
        return (), given


AttentionInterface.register(MERGED, merged_attention)
AttentionMaskInterface.register(MERGED, sdpa_mask)
