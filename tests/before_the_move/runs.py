"""The runs of tests/before_the_move: the command lines that made each folder, relative to the repository."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path("tests/before_the_move")
VOCABULARY = HERE / "gpt2"
ENCODER = (
    *("--encoder-layers", 2, "--encoder-embed-dim", 8, "--encoder-ffn-embed-dim", 8, "--encoder-attention-heads", 2),
    *("--max-positions", 64, "--window-size", 6),
)
TWO_LEVELS = ("--pooled-window-size", 20, "--pool-kernel-size", 5, "--pool-stride", 4, "--pooled-layers", 1)
TRAINING = (
    *("--user-dir", "fairseq_poolingformer", "--optimizer", "adam", "--adam-eps", 1e-4, "--lr", 0.01, "--seed", 3),
    *("--cpu", "--num-workers", 0, "--no-progress-bar", "--no-epoch-checkpoints", "--disable-validation"),
    *("--dropout", 0, "--attention-dropout", 0, "--batch-size", 3, "--required-batch-size-multiple", 1),
)
WITHOUT_OPTIMIZER = ("--no-save-optimizer-state",)


@dataclass(frozen=True)
class Run:
    """A data folder and a checkpoint trained on it.

    Attributes:
        corpus: the name of the preprocessing command, and its flags but for the output folder.
        training: flags of ``fairseq-train`` beside :data:`TRAINING`.
        updates: that the training had.
        predict: the command that predicts the split ``valid``, if the task has one, and its flags.
        gold: the file with the answers, if the predictions are scored with one.
    """

    corpus: tuple[object, ...]
    training: tuple[object, ...]
    updates: int
    predict: tuple[object, ...] = ()
    gold: Path | None = None


def _both(name: str, file: str) -> tuple[object, ...]:
    return ("--train", HERE / name / "raw" / file, "--valid", HERE / name / "raw" / file)


def _task(name: str, arch: str, *flags: object) -> tuple[object, ...]:
    return ("--task", name, "--criterion", "document_task", "--arch", arch, *ENCODER, *flags)


_GPT2 = ("--gpt2-bpe", VOCABULARY)
RUNS = {
    "summarization": Run(
        corpus=(
            *("arxiv_pubmed", *_both("summarization", "papers.jsonl")),
            *("--test", HERE / "summarization" / "raw" / "papers.jsonl", *_GPT2),
        ),
        training=(
            *("--task", "long_summarization", "--arch", "poolingformer_bart_tiny", "--max-source-positions", 64),
            *("--encoder-layers", 2, "--encoder-embed-dim", 8, "--encoder-ffn-embed-dim", 8, "--decoder-layers", 1),
            *("--encoder-attention-heads", 2, "--decoder-attention-heads", 2, "--window-size", 6, *TWO_LEVELS),
            *(
                "--decoder-ffn-embed-dim",
                8,
                "--encoder-layerdrop",
                0,
                "--decoder-layerdrop",
                0,
                "--max-target-positions",
                32,
                "--pool-type",
                "ldconv",
            ),
            *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", 0.1),
        ),
        updates=200,
    ),
    "masked_lm": Run(
        corpus=(
            *("plain_text", "--input", HERE / "masked_lm/raw/text.txt", "--valid", HERE / "masked_lm/raw/text.txt"),
            *("--documents", "block", "--min-chars", 1, *_GPT2),
        ),
        training=(
            *("--task", "long_masked_lm", "--criterion", "long_masked_lm", "--arch", "poolingformer_roberta_tiny"),
            *(*ENCODER, *TWO_LEVELS, "--pool-type", "mean-ldconv", *WITHOUT_OPTIMIZER),
        ),
        updates=6,
    ),
    "question_answering": Run(
        corpus=("natural_questions", *_both("question_answering", "questions.jsonl"), *_GPT2),
        training=(
            *("--task", "question_answering", "--criterion", "question_answering", "--negative-share", 1),
            *("--arch", "poolingformer_roberta_tiny", *ENCODER, *TWO_LEVELS, "--doc-stride", 20),
            *("--max-question-length", 12, "--pool-type", "max", *WITHOUT_OPTIMIZER),
        ),
        updates=20,
        predict=("predict-qa",),
        gold=HERE / "question_answering/raw/questions.jsonl",
    ),
    "wikihop": Run(
        corpus=("wikihop", *_both("wikihop", "questions.json"), *_GPT2),
        training=_task("wikihop", "longformer_roberta_tiny", *WITHOUT_OPTIMIZER),
        updates=20,
        predict=("predict",),
        gold=HERE / "wikihop/raw/questions.json",
    ),
    "classification": Run(
        corpus=("labelled_text", *_both("classification", "documents.jsonl"), *_GPT2),
        training=_task(
            *("document_classification", "poolingformer_roberta_tiny", *TWO_LEVELS, "--pool-type", "mean-ldconv"),
            *WITHOUT_OPTIMIZER,
        ),
        updates=20,
        predict=("predict",),
        gold=HERE / "classification/raw/documents.jsonl",
    ),
    "coreference": Run(
        corpus=("ontonotes", *_both("coreference", "documents.v4_gold_conll"), *_GPT2),
        training=_task(
            *("coreference", "longformer_roberta_tiny", "--head-hidden", 8, "--max-span-width", 6),
            *("--head-dropout", 0, "--mention-loss-weight", 1, "--batch-size", 1, *WITHOUT_OPTIMIZER),
        ),
        updates=20,
        predict=("predict",),
        gold=HERE / "coreference/raw/documents.v4_gold_conll",
    ),
    "triviaqa": Run(
        corpus=(
            *("triviaqa", *_both("triviaqa", "qa/set.json"), "--evidence-folder", HERE / "triviaqa/raw/evidence"),
            *("--sentencepiece-model", HERE / "sentencepiece.model"),
        ),
        training=_task(
            *("triviaqa", "poolingformer_roberta_tiny", *TWO_LEVELS, "--pool-type", "mean"),
            *("--pool-mix", "--pool-share-weights", "--max-question-length", 24, *WITHOUT_OPTIMIZER),
        ),
        updates=20,
        predict=("predict",),
        gold=HERE / "triviaqa/raw/qa/set.json",
    ),
    "hotpotqa": Run(
        corpus=("hotpotqa", *_both("hotpotqa", "questions.json"), *_GPT2),
        training=_task(
            *("hotpotqa", "poolingformer_deberta_tiny", *TWO_LEVELS, "--max-relative-positions", 8),
            *("--global-relative-positions", 8, "--max-question-length", 24, *WITHOUT_OPTIMIZER),
        ),
        updates=20,
        predict=("predict",),
        gold=HERE / "hotpotqa/raw/questions.json",
    ),
}
CHARACTERS = ("char_lm", "--input", HERE / "char_lm/raw/text", "--splits", "2200,220,220")
for _arch in ("gaa_lm", "adaptive_span_lm", "transformer_xl_lm", "longformer_lm"):
    RUNS[_arch] = Run(
        corpus=CHARACTERS,
        training=(
            *("--task", "char_lm", "--criterion", "char_lm", "--arch", f"{_arch}_tiny", "--tokens-per-sample", 24),
            *("--decoder-embed-dim", 8, "--decoder-ffn-embed-dim", 8, "--decoder-attention-heads", 2),
            *(() if _arch == "gaa_lm" else WITHOUT_OPTIMIZER),
        ),
        updates=8,
    )


def data_folder(name: str) -> Path:
    """Where a run's data folder is; the character models share one."""
    return HERE / ("char_lm" if RUNS[name].corpus is CHARACTERS else name) / "data"
