"""fairseq's ``--criterion long_masked_lm``."""

import math
from typing import Any

from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor

from fairseq_poolingformer.training.token_losses import linear_cross_entropy


@register_criterion("long_masked_lm", dataclass=FairseqDataclass)
class LongMaskedLMCriterion(FairseqCriterion):
    """Cross entropy of the masked tokens, as fairseq's ``masked_lm``, without all of their logits in memory.

    It logs ``loss`` in bits per masked token, which Longformer's table 5 calls BPC, its perplexity, and
    ``bits_per_character``, the same bits divided by the characters of the masked tokens; that can be compared between
    vocabularies.
    """

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
        """True, since every logged value is a sum."""
        return True
