"""Character language models: one long text, read block after block."""

import logging
import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.models import FairseqLanguageModel
from fairseq.tasks import register_task
from omegaconf import II

from fairseq_poolingformer.char_lm.data import (
    CarriedMemory,
    RowBatches,
    TextBlocks,
    TextStream,
    byte_dictionary,
    load_text,
)
from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.options import option
from fairseq_poolingformer.tasks.shared.base_task import OneDictionaryConfig, OneDictionaryTask

logger = logging.getLogger(__name__)


@dataclass
class CharLMConfig(OneDictionaryConfig):
    tokens_per_sample: int = option(512, "bytes of a block")
    require_memory: bool = option(
        False, "stop if the model has no memory; a model with a memory carries it from block to block anyway"
    )
    no_carry_memory: bool = option(False, "read every block with an empty memory, also where the model has one")
    rotate_text: bool = option(False, "begin every epoch at another byte of the text, so that blocks begin elsewhere")
    eval_context: int = option(
        32256,
        "poolingformer eval-lm: bytes of a sequence, or bytes that a model with memory reads before its "
        "first scored byte; at most --tokens-per-sample for a model without memory that sees everything",
    )
    eval_stride: int = option(512, "poolingformer eval-lm: bytes at the end of a sequence that are scored")
    amp: bool = II("common.amp")
    amp_batch_retries: int = II("common.amp_batch_retries")


@register_task("char_lm", dataclass=CharLMConfig)
class CharLMTask(OneDictionaryTask):
    """Predicts each byte of a text from those before it; reads ``--batch-size`` rows side by side, unshuffled."""

    cfg: CharLMConfig
    criterion = "char_lm"
    models, arch = FairseqLanguageModel, "longformer_lm_small"

    def __init__(self, cfg: CharLMConfig) -> None:
        super().__init__(cfg, byte_dictionary())
        if cfg.tokens_per_sample < 1:
            raise ValueError(f"--tokens-per-sample must be 1 or more, got {cfg.tokens_per_sample}")
        if cfg.require_memory and cfg.no_carry_memory:
            raise ValueError("--require-memory and --no-carry-memory: give one of the two")
        self.train_memory = None if cfg.no_carry_memory else CarriedMemory()
        self.valid_memory = None if cfg.no_carry_memory else CarriedMemory()
        self._saved_memories: list[dict[str, Any]] | None = None

    @classmethod
    def setup_task(cls, cfg: CharLMConfig, **kwargs: Any) -> "CharLMTask":
        """Make the task; the dictionary needs no file."""
        return cls(cfg)

    def max_positions(self) -> int:
        """Bytes of a block."""
        return self.cfg.tokens_per_sample

    def build_model(self, cfg, from_checkpoint: bool = False):
        """Build the model."""
        model = super().build_model(cfg, from_checkpoint)
        if getattr(model, "memory_length", 0) == 0:
            if self.cfg.require_memory and not from_checkpoint:
                raise ValueError(
                    "--require-memory, but the model has no memory: give --memory-length, or leave out --require-memory"
                )
            self.train_memory = self.valid_memory = None
        if self.train_memory is not None and self.cfg.amp and self.cfg.amp_batch_retries and not from_checkpoint:
            raise ValueError(
                "--amp reads a batch again after an overflow, then with a memory that has seen the batch: "
                "give --amp-batch-retries 0 as well, or --fp16 or --bf16 instead"
            )
        longest = model.max_positions()
        if longest is not None and longest < self.cfg.tokens_per_sample:
            raise ValueError(
                f"--tokens-per-sample {self.cfg.tokens_per_sample}, but the model takes {longest} bytes at a time"
            )
        return model

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Load a split of the data folder."""
        self.datasets[split] = load_text(self.folder(split, epoch), split)
        logger.info("%s: %d bytes", split, len(self.datasets[split]))

    def has_sharded_data(self, split: str) -> bool:
        """Whether epochs read different folders."""
        return len(utils.split_paths(self.cfg.data)) > 1

    def get_batch_iterator(
        self,
        dataset: TextStream,
        max_tokens: int | None = None,
        max_sentences: int | None = None,
        num_shards: int = 1,
        epoch: int = 1,
        data_buffer_size: int = 0,
        **kwargs: Any,
    ) -> RowBatches:
        """Batches of a text, in its order."""
        is_training = dataset is self.datasets.get(self.cfg.train_subset)
        blocks = TextBlocks(
            dataset,
            num_rows=num_shards * self._rows(max_sentences, max_tokens),
            tokens_per_sample=self.cfg.tokens_per_sample,
            rotation_seed=self.cfg.seed if is_training and self.cfg.rotate_text else None,
        )
        blocks.set_epoch(epoch)
        batches = blocks.batches(num_shards)
        return RowBatches(
            blocks,
            batches,
            cut=lambda examples: batches,  # never asked for: RowBatches continues in the same ones alone
            update_freq=self.cfg.update_freq,
            seed=self.cfg.seed,
            num_shards=num_shards,
            epoch=epoch,
            buffer_size=data_buffer_size,
            disable_shuffling=True,
            persistent_workers=False,  # there is an iterator for each epoch
            **{name: kwargs[name] for name in ("shard_id", "num_workers", "skip_remainder_batch") if name in kwargs},
        )

    def _rows(self, max_sentences: int | None, max_tokens: int | None) -> int:
        length = self.cfg.tokens_per_sample
        limits = [max_sentences, max_tokens and max_tokens // length]
        rows = min((limit for limit in limits if limit is not None), default=0)
        if rows < 1:
            raise ValueError(
                f"give --batch-size, the rows of text that each worker reads side by side (with --max-tokens "
                f"{max_tokens} and --tokens-per-sample {length} there is room for {rows})"
            )
        return rows

    def build_generator(self, *args: Any, **kwargs: Any) -> None:
        """Stop ``fairseq-generate``, which translates, and knows no memory."""
        raise UsageError(
            "fairseq-generate cannot continue texts of --task char_lm: use poolingformer eval-lm for the loss of a text"
        )

    def eval_lm_dataloader(self, *args: Any, **kwargs: Any) -> None:
        """Stop ``fairseq-eval-lm``, which knows neither the memory nor the context of these models."""
        raise UsageError(
            "fairseq-eval-lm cannot evaluate --task char_lm: it gives models no memory. "
            "Use poolingformer eval-lm DATA --path CHECKPOINT --subset SPLIT"
        )

    def gather_checkpoint_state(self) -> None:
        """Bring the memories of all workers to the one that saves; all of them must call this."""
        if self.train_memory is None:
            return
        state = self.train_memory.state_dict()
        if not torch.distributed.is_initialized():
            self._saved_memories = [state]
            return
        is_master = torch.distributed.get_rank() == 0
        memories = [None] * torch.distributed.get_world_size() if is_master else None
        torch.distributed.gather_object(state, memories)
        self._saved_memories = memories

    def get_checkpoint_dict(self) -> dict[str, Any]:
        """The memories of all workers, as gathered last, which fairseq saves."""
        memories, self._saved_memories = self._saved_memories, None
        return {type(self).__name__: {"memories": memories}} if memories else {}

    def set_checkpoint_dict(self, state: dict[str, Any]) -> None:
        """Take the saved memories, when the run is resumed in the middle of the text."""
        if self.train_memory is None:
            return
        is_distributed = torch.distributed.is_initialized()
        workers = torch.distributed.get_world_size() if is_distributed else 1
        if len(state["memories"]) == workers:  # with others an epoch begins, and its memory is empty
            rank = torch.distributed.get_rank() if is_distributed else 0
            self.train_memory.load_state_dict(state["memories"][rank])


@register_criterion("char_lm", dataclass=FairseqDataclass)
class CharLMCriterion(FairseqCriterion):
    """Cross entropy of a text's bytes, logged as bits per character; hands the model's memory on, with the task."""

    # a model's ``span_loss`` (nats; Sukhbaatar et al. 2019, eq. 6) is added to the mean; ``bpc`` is without it
    logged = ("loss", "bpc", "average_span")

    def __init__(self, task):
        super().__init__(task)
        if not hasattr(task, "train_memory"):
            raise ValueError("--criterion char_lm needs --task char_lm")
        self.train_memory, self.valid_memory = task.train_memory, task.valid_memory

    def forward(self, model, sample: dict[str, Any], reduce: bool = True):
        """Compute the loss of a batch of ``TextBlocks``, a sum whatever ``reduce`` is."""
        carried = self.train_memory if self.training else self.valid_memory
        memory = carried.before(sample) if carried is not None else None
        logits, extra = model(**sample["net_input"], **({} if memory is None else {"memory": memory}))
        if carried is not None:
            carried.keep(sample, extra.get("memory"))
        target, count = sample["target"].flatten(), sample["ntokens"]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, 1)
        nll = F.cross_entropy(logits, target, ignore_index=self.padding_idx, reduction="sum")
        loss = nll
        logging_output = {"nll": nll.detach(), "ntokens": count, "nsentences": sample["nsentences"]}
        if extra.get("span_loss") is not None:
            loss = nll + extra["span_loss"] * count
        if extra.get("average_span") is not None:
            logging_output["average_span"] = torch.as_tensor(extra["average_span"], device=nll.device).detach() * count
        if extra.get("spans") is not None:
            spans = extra["spans"].detach().mean(1) * count
            logging_output |= {f"span_layer_{number}": span for number, span in enumerate(spans.unbind())}
        logging_output |= {"loss": loss.detach(), "sample_size": count}
        return loss, count, logging_output

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Sum over batches and workers, then divide by the bytes."""
        totals = {name: sum(log.get(name, 0) for log in logging_outputs) for name in logging_outputs[0]}
        count = totals["ntokens"]
        metrics.log_scalar("loss", totals["loss"] / count / math.log(2), count, round=4)
        metrics.log_scalar("bpc", totals["nll"] / count / math.log(2), count, round=4)
        for name in totals:
            if name == "average_span" or name.startswith("span_layer_"):
                metrics.log_scalar(name, totals[name] / count, count, round=1)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: all logged numbers are sums."""
        return True
