"""Summarization of long documents, on fairseq's translation task."""

# ruff: noqa: UP045 - fairseq reads the fields' types at run time and knows Optional only

import json
import logging
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Optional

import numpy as np
import torch
from fairseq import utils
from fairseq.data import BaseWrapperDataset, FairseqDataset, LanguagePairDataset, ListDataset
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.models import FairseqEncoderDecoderModel
from fairseq.scoring import BaseScorer, register_scorer
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from torch import Tensor

from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.models.hub import DictionaryBPE
from fairseq_poolingformer.options import option
from fairseq_poolingformer.tasks.shared.base_task import CheckedConfig, CheckedTask
from fairseq_poolingformer.tasks.summarization import PAIRS, QUERY, pair_array
from fairseq_poolingformer.tasks.summarization.rouge import (
    ROUGE_TYPES,
    bootstrap,
    describe,
    mean_f1,
    rouge_scores,
    unread_note,
)
from fairseq_poolingformer.text.data_folder import DataFolder, FolderError, check_file, is_of_fairseq_preprocess
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from fairseq_poolingformer.training.sized_dataset import LengthBucketDataset

logger = logging.getLogger(__name__)


class _Sized:
    """A data set whose ``_sizes`` are (n,) lengths of its sequences."""

    _sizes: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        return self._sizes

    def num_tokens(self, index: int) -> int:
        return int(self._sizes[index])

    def size(self, index: int) -> int:
        return int(self._sizes[index])


class FramedDataset(_Sized, BaseWrapperDataset):
    """Begin every sequence with ``<s>``, and cut it before its ``</s>`` to fit ``max_length``."""

    def __init__(self, dataset, sizes: np.ndarray, *, bos: int, eos: int, max_length: int | None) -> None:
        super().__init__(dataset)
        if max_length is not None and max_length < 3:
            raise ValueError(f"max_length must leave room for <s>, a token and </s>, got {max_length}")
        self.bos, self.eos = bos, eos
        self.max_length = np.iinfo(np.int64).max if max_length is None else max_length
        whole = np.asarray(sizes, dtype=np.int64) + 1
        self._sizes = np.minimum(whole, self.max_length)
        self.num_truncated = int((whole > self.max_length).sum())
        self.num_tokens_cut = int((whole - self._sizes).sum())

    def __getitem__(self, index: int) -> Tensor:
        tokens = self.dataset[index]
        tokens = torch.cat([tokens.new_tensor([self.bos]), tokens])
        if len(tokens) > self.max_length:
            tokens = tokens[: self.max_length].clone()
            tokens[-1] = self.eos
        return tokens


class StoredTokens(_Sized, FairseqDataset):
    """Index tensors (T,), int64, read from a memory-mapped file."""

    def __init__(self, sequences: Sequences) -> None:
        super().__init__()
        self._sequences, self._sizes = sequences, sequences.sizes

    def __getitem__(self, index: int) -> Tensor:
        return torch.from_numpy(self._sequences[index].astype(np.int64))

    def __len__(self) -> int:
        return len(self._sequences)


class QueriedDataset(LengthBucketDataset):
    """Pairs whose documents begin with questions, the tokens of which are global."""

    def __init__(self, *pairs: Any, queries: Sequences, global_tokens: int, **named: Any) -> None:
        super().__init__(*pairs, **named)
        self.queries, self.global_tokens = queries, global_tokens

    def collater(self, samples: Sequence[Mapping[str, Any]], pad_to_length: Any = None) -> dict[str, Any]:
        """fairseq's batch with ``global_mask``, (B, T) bool."""
        batch = super().collater(samples, pad_to_length)
        if batch:
            counts = [max(1 + int(self.queries[index][0]), self.global_tokens) for index in batch["id"].tolist()]
            places = torch.arange(batch["net_input"]["src_tokens"].size(1))
            batch["net_input"]["global_mask"] = places < torch.tensor(counts)[:, None]
        return batch


@register_scorer("rouge", dataclass=FairseqDataclass)
class RougeScorer(BaseScorer):
    """ROUGE-1/2/L/Lsum of what fairseq-generate writes (a shard: of its own examples), printed when generation ends."""

    without_reference = 0

    def reset(self) -> None:
        self.ref, self.pred, self.without_reference = [], [], 0

    def add_string(self, ref: str, pred: str) -> None:
        """Take a pair; a document without a reference does not count."""
        if ref.strip():
            super().add_string(ref, pred)
        else:
            self.without_reference += 1

    def score(self) -> float:
        """Mean F1 × 100 of ROUGE-1, -2 and -Lsum averaged, one number to choose a checkpoint by; 0 without examples."""
        f1 = mean_f1(self.pred, self.ref)
        return (f1["rouge1"] + f1["rouge2"] + f1["rougeLsum"]) / 3

    def result_string(self) -> str:
        if not self.pred:
            return "ROUGE of 0 examples: nothing to score"
        estimates = bootstrap(rouge_scores(self.pred, self.ref))
        lines = [describe(estimates, examples=len(self.pred)), unread_note(self.ref)]
        if self.without_reference:
            lines.append(f"{self.without_reference} documents have no reference and are left out")
        return "\n".join(filter(None, lines))


@dataclass
class LongSummarizationConfig(CheckedConfig, TranslationConfig):
    source_lang: Optional[str] = option("source", "name of the documents in the data folder")
    target_lang: Optional[str] = option("target", "name of the summaries in the data folder")
    left_pad_source: bool = option(False, "pad documents on the left")
    max_source_positions: Optional[int] = option(
        None, "the most tokens of a document, with <s> and </s>; longer ones are cut (default: the model's)"
    )
    max_target_positions: Optional[int] = option(
        None,
        "the most tokens of a summary, with <s> and </s>; training and validation cut longer ones "
        "(default: the model's)",
    )
    max_target_length: Optional[int] = option(
        None, "cut the summaries of training and validation to so many tokens, with <s> and </s>"
    )
    eval_rouge: bool = option(False, "generate summaries in validation and report their ROUGE F1 (0 to 100)")
    eval_rouge_args: str = option(
        '{"beam": 1, "max_len_b": 256}',
        'generation options for --eval-rouge as JSON, e.g. \'{"beam": 5, "lenpen": 2.0}\'',
    )


@register_task("long_summarization", dataclass=LongSummarizationConfig)
class LongSummarizationTask(CheckedTask, TranslationTask):
    """Summarize documents as BART was trained: ``<s> text </s>`` on both sides, cut to the model's length."""

    cfg: LongSummarizationConfig
    layout = PAIRS
    criterion = "linear_cross_entropy"
    models, arch = FairseqEncoderDecoderModel, "poolingformer_bart_base"
    other_criterions = ("cross_entropy", "label_smoothed_cross_entropy", "adaptive_loss")

    def __init__(self, cfg: LongSummarizationConfig, src_dict, tgt_dict) -> None:
        super().__init__(cfg, src_dict, tgt_dict)
        if cfg.left_pad_source or cfg.left_pad_target:
            raise ValueError("documents and summaries are padded on the right: pooling counts from the first position")
        for name in ("max_source_positions", "max_target_positions"):
            if (limit := getattr(cfg, name)) is not None and limit < 3:
                flag = f"--{name.replace('_', '-')}"
                raise ValueError(
                    f"{flag} {limit} has no room for <s>, a token and </s>: give 3 or more, or leave it out"
                )
        self.source_limit, self.target_limit = cfg.max_source_positions, cfg.max_target_positions
        self.global_tokens = 0  # the model's first ones; 0: it has none
        paths = DataFolder(self.data_folder, PAIRS).dictionary_paths()
        for path in paths:
            check_file(self.data_folder, path)
        self.remember({path.name: held.symbols for path, held in zip(paths, (src_dict, tgt_dict), strict=True)})

    @classmethod
    def setup_task(cls, cfg: LongSummarizationConfig, **kwargs: Any) -> "LongSummarizationTask":
        names = (f"dict.{cfg.source_lang}.txt", f"dict.{cfg.target_lang}.txt")
        DataFolder(Path(utils.split_paths(cfg.data)[0]), replace(PAIRS, dictionaries=names)).dictionary()
        return super().setup_task(cfg, **kwargs)

    def build_model(self, cfg, from_checkpoint: bool = False):
        """Build the model and take the lengths of documents and summaries from it."""
        model = super().build_model(cfg, from_checkpoint)
        encoder_limit, decoder_limit = model.max_positions()
        self.source_limit = min(self.source_limit or encoder_limit, encoder_limit)
        self.target_limit = min(self.target_limit or decoder_limit, decoder_limit)
        self.global_tokens = getattr(model.encoder, "global_tokens", 0)
        if self.cfg.eval_rouge:
            arguments = json.loads(self.cfg.eval_rouge_args)
            self.sequence_generator = self.build_generator([model], Namespace(**arguments))
            self.rouge_bpe = self.build_bpe(None)
            if self.rouge_bpe is None:
                raise UsageError(
                    f"--eval-rouge: {self.data_folder} has no tokenizer to make texts of summaries with; leave it out, "
                    "and score the output of fairseq-generate --bpe …"
                )
        return model

    @property
    def logged(self) -> Sequence[str]:
        """Metrics of a validation, beside those of its criterion."""
        return (*ROUGE_TYPES * self.cfg.eval_rouge, *["bleu"] * self.cfg.eval_bleu)

    def max_positions(self) -> tuple[int | None, int | None]:
        """The most tokens of a document and of a summary; None before there is a model."""
        return self.source_limit, self.target_limit

    @property
    def longest_target(self) -> int | None:
        """The most tokens of a summary that the decoder reads; None without a model or a flag."""
        limits = [n for n in (self.target_limit, self.cfg.max_target_length) if n is not None]
        return min(limits) if limits else None

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        path = self.folder(split, epoch)
        folder, names = DataFolder(path, PAIRS), (self.cfg.source_lang, self.cfg.target_lang)
        source, target = (StoredTokens(folder.sequences(split, pair_array(name, *names))) for name in names)
        if len(source) != len(target):
            raise FolderError(
                f"{folder.array_path(split, pair_array(names[0], *names))}.bin has {len(source)} documents, and beside "
                f"it are {len(target)} summaries: they do not belong together; preprocess again"
            )
        source = self._frame(source, source.sizes, self.source_limit)
        # summaries of training are cut here; those to score against stay whole, and valid_step cuts them for the loss
        longest = self.longest_target
        target = self._frame(target, target.sizes, longest if split == self.cfg.train_subset else None)
        # fairseq filters by these sizes, and no example may be left out for its long summary
        target_sizes = target.sizes if longest is None else np.minimum(target.sizes, longest)
        self._log_truncation(split, "documents", source)
        self._log_truncation(split, "summaries", target)
        make: Callable[..., LengthBucketDataset] = LengthBucketDataset
        if self.global_tokens and Path(f"{folder.array_path(split, QUERY)}.idx").exists():
            queries = folder.sequences(split, QUERY)
            make = partial(QueriedDataset, queries=queries, global_tokens=self.global_tokens)
        self.datasets[split] = make(
            source,
            source.sizes,
            self.src_dict,
            target,
            target_sizes,
            self.tgt_dict,
            left_pad_source=self.cfg.left_pad_source,
            left_pad_target=self.cfg.left_pad_target,
            num_buckets=self.cfg.num_batch_buckets,
            shuffle=split == self.cfg.train_subset,
            pad_to_multiple=self.cfg.required_seq_len_multiple,
        )

    def build_dataset_for_inference(self, src_tokens, src_lengths, constraints=None) -> LanguagePairDataset:
        """Make a dataset of index tensors, with or without ``<s>``, always with ``</s>``."""
        bos = self.src_dict.bos()
        src_tokens = [tokens[1:] if len(tokens) and int(tokens[0]) == bos else tokens for tokens in src_tokens]
        sizes = np.array([len(tokens) for tokens in src_tokens])
        source = self._frame(ListDataset(src_tokens, sizes), sizes, self.source_limit)
        self._log_truncation("input", "documents", source)
        return LanguagePairDataset(
            source,
            source.sizes,
            self.src_dict,
            tgt_dict=self.tgt_dict,
            left_pad_source=self.cfg.left_pad_source,
            constraints=constraints,
        )

    def _frame(self, dataset, sizes: np.ndarray, max_length: int | None) -> FramedDataset:
        return FramedDataset(dataset, sizes, bos=self.src_dict.bos(), eos=self.src_dict.eos(), max_length=max_length)

    def _log_truncation(self, split: str, what: str, dataset: FramedDataset) -> None:
        if dataset.num_truncated:
            whole = int(dataset.sizes.sum()) + dataset.num_tokens_cut
            logger.info(
                "%s: %d of %d %s cut to %d tokens (%.1f%% of all tokens lost)",
                *(split, dataset.num_truncated, len(dataset), what, dataset.max_length),
                100 * dataset.num_tokens_cut / whole,
            )

    def build_bpe(self, args):
        """Build the ``--bpe`` that is named, or else the data folder's own tokenizer; fairseq-preprocess keeps none."""
        if args is not None and getattr(args, "_name", None) is not None:
            return super().build_bpe(args)
        if is_of_fairseq_preprocess(self.data_folder):
            return None
        return DictionaryBPE(load_tokenizer(self.data_folder), self.tgt_dict)

    def build_generator(self, models, args, seq_gen_cls=None, extra_gen_cls_kwargs=None, **kwargs):
        if getattr(args, "print_alignment", None):
            raise ValueError(
                "--print-alignment: the decoder keeps no weights while it writes; leave the flag out and see where it "
                "looks with poolingformer show CHECKPOINT FILE"
            )
        return super().build_generator(models, args, seq_gen_cls, extra_gen_cls_kwargs, **kwargs)

    def inference_step(self, generator, models, sample, prefix_tokens=None, constraints=None):
        """Generate summaries that begin with ``<s>``, as those of training do."""
        if prefix_tokens is None:
            source = sample["net_input"]["src_tokens"]
            prefix_tokens = source.new_full((source.size(0), 1), self.tgt_dict.bos())
        return super().inference_step(generator, models, sample, prefix_tokens, constraints)

    def valid_step(self, sample, model, criterion):
        """Compute the loss of as much of each summary as the decoder takes and, with ``--eval-rouge``, ROUGE."""
        loss, sample_size, logging_output = super().valid_step(self._fitting(sample), model, criterion)
        if self.cfg.eval_rouge:
            hypotheses, references = self._summarize(sample, model)
            logging_output["_rouge_count"] = count = len(hypotheses)
            for name, score in mean_f1(hypotheses, references).items():
                logging_output[f"_{name}_sum"] = score * count
        return loss, sample_size, logging_output

    def _fitting(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Cut the summaries of a batch to the decoder's length."""
        longest = self.longest_target
        if longest is None or sample["target"].size(1) <= longest:
            return sample
        target = sample["target"][:, :longest].contiguous()  # criterions view it as one row
        previous = sample["net_input"]["prev_output_tokens"][:, :longest].contiguous()
        return {
            **sample,
            "target": target,
            "ntokens": int(target.ne(self.tgt_dict.pad()).sum()),
            "net_input": {**sample["net_input"], "prev_output_tokens": previous},
        }

    def _summarize(self, sample, model) -> tuple[list[str], list[str]]:
        def text(tokens: torch.Tensor) -> str:
            return self.rouge_bpe.decode(self.tgt_dict.string(tokens.int().cpu()))

        with torch.no_grad():
            generated = self.inference_step(self.sequence_generator, [model], sample)
        hypotheses = [text(best[0]["tokens"]) for best in generated]
        references = [text(utils.strip_pad(target, self.tgt_dict.pad())) for target in sample["target"]]
        return hypotheses, references

    def reduce_metrics(self, logging_outputs: list[dict[str, Any]], criterion) -> None:
        """Sum over batches and workers; ``rouge1``, ``rouge2``, ``rougeL``, ``rougeLsum`` are means over summaries."""
        super().reduce_metrics(logging_outputs, criterion)
        count = sum(float(log.get("_rouge_count", 0)) for log in logging_outputs)
        if count:
            for name in ROUGE_TYPES:
                total = sum(float(log.get(f"_{name}_sum", 0)) for log in logging_outputs)
                metrics.log_scalar(name, total / count, count, round=2)
