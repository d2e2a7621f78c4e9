"""fairseq's ``--scoring rouge``."""

from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.scoring import BaseScorer, register_scorer

from fairseq_poolingformer.tasks.summarization.rouge import bootstrap, describe, mean_f1, rouge_scores
from fairseq_poolingformer.tasks.summarization.sentences import SENTENCE_SPLITS


@dataclass
class RougeScorerConfig(FairseqDataclass):
    rouge_no_stemmer: bool = field(
        default=False, metadata={"help": "compare words as they are instead of their Porter stems"}
    )
    rouge_sentence_split: ChoiceEnum(list(SENTENCE_SPLITS)) = field(
        default="rule",
        metadata={
            "help": "where ROUGE-Lsum's sentences end: "
            + "; ".join(f"{name}: {meaning}" for name, meaning in SENTENCE_SPLITS.items())
        },
    )


@register_scorer("rouge", dataclass=RougeScorerConfig)
class RougeScorer(BaseScorer):
    """ROUGE-1/2/L/Lsum of what fairseq-generate writes, printed when generation ends.

    A shard of ``--num-shards`` scores its own examples; ``poolingformer-score shard*.out`` scores all of them.
    """

    def __init__(self, cfg: RougeScorerConfig):
        super().__init__(cfg)
        self.without_reference = 0
        self.settings = {
            "stemmer": not cfg.rouge_no_stemmer,
            "sentence_split": str(cfg.rouge_sentence_split),
        }

    def reset(self) -> None:
        """Forget the strings added so far."""
        self.ref, self.pred, self.without_reference = [], [], 0

    def add_string(self, ref: str, pred: str) -> None:
        """Take a pair; a document without a reference does not count."""
        if ref.strip():
            super().add_string(ref, pred)
        else:
            self.without_reference += 1

    def score(self) -> float:
        """Mean F1 × 100 of ROUGE-1, -2 and -Lsum averaged, one number to choose a checkpoint by; 0 without examples."""
        f1 = mean_f1(self.pred, self.ref, **self.settings)
        return (f1["rouge1"] + f1["rouge2"] + f1["rougeLsum"]) / 3

    def result_string(self) -> str:
        """Every score with its interval and settings, in several lines."""
        if not self.pred:
            return "ROUGE of 0 examples: nothing to score"
        estimates = bootstrap(rouge_scores(self.pred, self.ref, **self.settings))
        text = describe(estimates, examples=len(self.pred), **self.settings)
        missing = f"\n{self.without_reference} documents have no reference and are left out"
        return text + missing * bool(self.without_reference)
