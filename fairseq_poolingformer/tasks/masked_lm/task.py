"""Masked language modeling on long documents."""

# ruff: noqa: UP045 - fairseq reads the fields' types at run time and knows Optional only

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np
import torch
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.data import Dictionary
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.logging import metrics
from fairseq.tasks import FairseqTask, register_task
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.options import option
from fairseq_poolingformer.tasks.masked_lm import DOCUMENTS
from fairseq_poolingformer.tasks.shared.base_task import OneDictionaryConfig, OneDictionaryTask
from fairseq_poolingformer.text.data_folder import DataFolder, is_of_fairseq_preprocess
from fairseq_poolingformer.text.document_blocks import DocumentBlocks, cut_into_blocks, documents_of_lines
from fairseq_poolingformer.text.masking import Masking, SymbolTable
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.tokenizer_base import SPARE_SYMBOL
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from fairseq_poolingformer.training.sized_dataset import SizedDataset
from fairseq_poolingformer.training.token_losses import linear_cross_entropy

logger = logging.getLogger(__name__)


@register_criterion("long_masked_lm", dataclass=FairseqDataclass)
class LongMaskedLMCriterion(FairseqCriterion):
    """Cross entropy of the masked tokens, as fairseq's ``masked_lm``, without all of their logits in memory."""

    # ``loss`` is in bits per masked token, Longformer's "BPC"; ``bits_per_character`` compares between vocabularies
    logged = ("loss", "bits_per_character", "ppl")

    def __init__(self, task: FairseqTask) -> None:
        super().__init__(task)
        if getattr(task, "has_lines", False):
            self.logged = ("loss", "ppl")

    def forward(self, model, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        """Compute the loss of a batch of ``MaskedLMDataset``, a sum whatever ``reduce`` is."""
        positions = sample["masked_positions"]
        features, _ = model(**sample["net_input"], features_only=True)
        head = model.encoder.lm_head
        features = head.dense(features.flatten(0, 1)[positions])
        features = head.layer_norm(head.activation_fn(features))
        target = sample["target"].flatten()[positions]
        loss, _ = linear_cross_entropy(features, head.weight, head.bias, target)
        logging_output = {
            "loss": loss.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": len(positions),
            "num_characters": sample["num_characters"],
        }
        return loss, len(positions), logging_output

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Log the sums over batches and workers, divided by their counts."""
        bits = sum(log["loss"] for log in logging_outputs) / math.log(2)
        for name, unit in (("loss", "sample_size"), ("bits_per_character", "num_characters")):
            count = sum(log[unit] for log in logging_outputs)
            if count:
                metrics.log_scalar(name, bits / count, count, round=3)
        if sum(log["sample_size"] for log in logging_outputs):
            metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["loss"].avg))

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True


VALIDATION_SEED = 0  # of the masks, whatever a run's seed is, so that the losses of two runs can be compared


class MaskedLMDataset(SizedDataset):
    """Reads blocks ``<s> … </s>`` and masks each by the seed, the epoch and its own number alone."""

    def __init__(
        self,
        documents: Sequences,
        blocks: DocumentBlocks,
        masking: Masking,
        dictionary: Dictionary,
        *,
        seed: int = 1,
        shuffle: bool = False,
    ) -> None:
        super().__init__(blocks.sizes, shuffle)
        self.documents, self.blocks, self.masking, self.dictionary = documents, blocks, masking, dictionary
        self.seed, self.epoch = seed, 1

    def set_epoch(self, epoch: int) -> None:
        if self.shuffle:
            self.epoch = epoch

    def __getitem__(self, index: int) -> dict[str, Any]:
        text = self.documents.read(self.blocks.first_token[index], self.blocks.end_token[index])
        tokens = np.concatenate([[self.dictionary.bos()], text, [self.dictionary.eos()]]).astype(np.int64)
        rng = np.random.default_rng([self.seed, self.epoch, index])
        inputs, is_target = self.masking.apply(tokens, rng)
        return {
            "id": index,
            "tokens": torch.from_numpy(inputs),
            "target": torch.from_numpy(np.where(is_target, tokens, self.dictionary.pad())),
            "num_characters": int(self.masking.symbols.num_characters[tokens[is_target]].sum()),
        }

    def collater(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        if not samples:
            return {}
        target = self._pad([sample["target"] for sample in samples])
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": sum(len(sample["tokens"]) for sample in samples),
            "net_input": {"src_tokens": self._pad([sample["tokens"] for sample in samples])},
            "target": target,
            # found here, since finding them on the device would make the criterion wait for their number
            "masked_positions": target.flatten().ne(self.dictionary.pad()).nonzero().squeeze(1),
            "num_characters": sum(sample["num_characters"] for sample in samples),
        }

    def _pad(self, rows: list[Tensor]) -> Tensor:
        return pad_sequence(rows, batch_first=True, padding_value=self.dictionary.pad())


@dataclass
class LongMaskedLMConfig(OneDictionaryConfig):
    max_positions: int = option(4096, "the most tokens that the model takes")
    block_tokens: Optional[int] = option(
        None, "the most tokens of a block, with <s> and </s>; default: --max-positions"
    )
    document_blocks: ChoiceEnum(["separate", "pack"]) = option(
        "separate",
        "separate: a block has tokens of one document only; pack: documents follow one another with </s> "
        "between them, and all blocks are full",
    )
    min_block_tokens: Optional[int] = option(
        None,
        "a long document's last block that would have fewer tokens shares evenly with the block before it; "
        "default: an eighth of --block-tokens",
    )
    mask_prob: float = option(0.15, "the share of the tokens to predict")
    leave_unmasked_prob: float = option(0.1, "the share of these that stays as it is")
    random_token_prob: float = option(0.1, "the share of these that random symbols replace")
    mask_whole_words: bool = option(False, "mask all tokens of a word; for languages that write spaces between words")


@register_task("long_masked_lm", dataclass=LongMaskedLMConfig)
class LongMaskedLMTask(OneDictionaryTask):
    """Masked language modeling on blocks ``<s> … </s>`` of whole documents (Longformer §5, thesis §3.2)."""

    cfg: LongMaskedLMConfig
    layout = DOCUMENTS
    criterion = "long_masked_lm"
    other_criterions = ("masked_lm",)

    def __init__(self, cfg: LongMaskedLMConfig, dictionary: Dictionary) -> None:
        super().__init__(cfg, dictionary)
        for name in ("max_positions", "block_tokens"):
            tokens = getattr(cfg, name)
            if tokens is not None and tokens < 3:  # <s>, a token, </s>
                raise ValueError(f"--{name.replace('_', '-')} must be 3 or more, got {tokens}")
        self.has_lines = is_of_fairseq_preprocess(self.data_folder)  # in place of documents
        if not self.has_lines:
            texts = load_tokenizer(self.data_folder).symbol_texts()
        elif cfg.mask_whole_words:
            raise UsageError(
                f"--mask-whole-words: {self.data_folder} has no tokenizer to tell words by; leave it out, or make the "
                "folder by poolingformer preprocess"
            )
        else:  # texts in which no character begins, so that bits_per_character is not computed
            texts = [b"" if SPARE_SYMBOL.fullmatch(symbol) else b"\x80" for symbol in dictionary.symbols]
            texts[: dictionary.nspecial] = [b""] * dictionary.nspecial
            logger.info(
                "%s has no tokenizer: an empty line ends a document, bits_per_character is left out", self.data_folder
            )
        if len(texts) != len(dictionary):
            raise ValueError(
                f"{self.data_folder}: dict.txt gives {len(dictionary)} symbols, and the tokenizer beside it "
                f"{len(texts)}; make the data folder again"
            )
        self.mask_idx = dictionary.add_symbol("<mask>")
        texts += [b""] * (len(dictionary) - len(texts))
        texts[self.mask_idx] = b""  # some tokenizers have this symbol
        self.masking = Masking(
            SymbolTable.of(texts),
            self.mask_idx,
            cfg.mask_prob,
            cfg.leave_unmasked_prob,
            cfg.random_token_prob,
            cfg.mask_whole_words,
        )

    @property
    def block_tokens(self) -> int:
        return self.cfg.block_tokens or self.cfg.max_positions

    def build_model(self, cfg, from_checkpoint: bool = False):
        model = super().build_model(cfg, from_checkpoint)
        longest = model.max_positions()
        if longest < self.block_tokens:
            raise ValueError(
                f"blocks have up to {self.block_tokens} tokens, but the model takes {longest}; give both with "
                "--max-positions, or shorter blocks with --block-tokens"
            )
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise ValueError(
                "--freeze-pretrained leaves nothing to train: --max-positions must be more than "
                "--pretrained-positions, or --pooled-layers some layers"
            )
        return model

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        is_training = split == self.cfg.train_subset
        documents = DataFolder(self.folder(split, epoch), self.layout).sequences(split)
        if len(documents) and (not len(documents[0]) or documents[0][-1] != self.dictionary.eos()):
            raise ValueError(f"{documents.prefix}: the documents do not end with </s>; preprocess again")
        bounds, num_last = documents_of_lines(documents.bounds) if self.has_lines else (documents.bounds, 1)
        blocks = cut_into_blocks(
            bounds,
            num_last=num_last,
            max_tokens=self.block_tokens,
            min_tokens=self.cfg.min_block_tokens,
            pack=self.cfg.document_blocks == "pack",
        )
        sizes = blocks.sizes
        logger.info(
            "%s: %d blocks of %d documents: %d tokens; median %d, %d blocks of the full %d; %d documents cut, "
            "%d of their last blocks share with the block before; %d documents empty",
            *(split, len(blocks), len(bounds) - 1, sizes.sum(), np.median(sizes) if len(sizes) else 0),
            *((sizes == self.block_tokens).sum(), self.block_tokens),
            *(blocks.num_cut, blocks.num_evened, blocks.num_empty),
        )
        self.datasets[split] = MaskedLMDataset(
            documents,
            blocks,
            self.masking,
            self.dictionary,
            seed=self.cfg.seed if is_training else VALIDATION_SEED,
            shuffle=is_training,
        )
