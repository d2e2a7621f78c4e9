"""fairseq's ``--criterion document_task``: the loss of whatever downstream task is trained."""

import math
from typing import Any

from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics


@register_criterion("document_task", dataclass=FairseqDataclass)
class DocumentTaskCriterion(FairseqCriterion):
    """The loss of a :class:`~fairseq_poolingformer.tasks.shared.task.DocumentTask`, summed over examples.

    It logs the loss and its parts as means over examples in bits, as fairseq's criterions do, and each share that the
    task counts.
    """

    def forward(self, model, sample: dict[str, Any], reduce: bool = True):
        """Compute the loss of a batch.

        Args:
            model: a RoBERTa of this package with the task's head.
            sample: a batch of :class:`~fairseq_poolingformer.tasks.shared.dataset.SegmentsDataset`.
            reduce: unused; the loss is a sum.

        Returns:
            The loss summed over examples, the number of examples, and the sums to log.
        """
        output, _ = model(**sample["net_input"])
        loss, sums = self.task.loss(output, sample["target"])
        count = sample["nsentences"]
        logging_output = {"loss": loss.detach(), "ntokens": sample["ntokens"], "nsentences": count}
        return loss, count, logging_output | {"sample_size": count} | sums

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Sum over batches and workers, divide, and log."""
        totals = {name: sum(log.get(name, 0) for log in logging_outputs) for name in logging_outputs[0]}
        count = totals["sample_size"]
        for name in totals:
            if name == "loss" or name.endswith("_loss"):
                metrics.log_scalar(name, totals[name] / count / math.log(2), count, round=3)
            elif name.endswith("_correct"):
                share = name.removeprefix("_").removesuffix("_correct")
                if of := float(totals[f"_{share}_total"]):
                    metrics.log_scalar(share, float(totals[name]) / of, of, round=4)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Return True: every value in the logging outputs is a sum."""
        return True
