"""fairseq's ``--criterion long_masked_lm``."""

import math
from typing import Any

from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor

from fairseq_poolingformer.criterions.functional import linear_cross_entropy


@register_criterion("long_masked_lm", dataclass=FairseqDataclass)
class LongMaskedLMCriterion(FairseqCriterion):
    """Cross entropy of the masked tokens, as fairseq's ``masked_lm``, without all of their logits in memory.

    Logged are ``loss`` in bits per masked token, which is what Longformer's table 5 calls BPC, its perplexity, and
    ``bits_per_character``: the same bits divided by the characters of the masked tokens, which does not depend on how
    long a vocabulary's tokens are. The head is applied outside DistributedDataParallel's forward, so that
    ``--ddp-backend fully_sharded`` needs fairseq's criterion.
    """

    def forward(self, model, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        """The loss of a batch of blocks.

        Args:
            model: a RoBERTa, fairseq's or one of this package.
            sample: a batch of :class:`~fairseq_poolingformer.data.masked_lm_dataset.MaskedLMDataset`.
            reduce: unused; the loss is a sum.

        Returns:
            The loss summed over masked tokens in nats, their number, and what is logged.
        """
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
        """Sum over batches and workers, then divide."""
        bits = sum(log["loss"] for log in logging_outputs) / math.log(2)
        for name, unit in (("loss", "sample_size"), ("bits_per_character", "num_characters")):
            count = sum(log[unit] for log in logging_outputs)
            if count:
                metrics.log_scalar(name, bits / count, count, round=3)
        if sum(log["sample_size"] for log in logging_outputs):
            metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["loss"].avg))

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: everything logged is a sum."""
        return True
