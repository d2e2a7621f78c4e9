"""fairseq's ``--criterion char_lm``."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics


@register_criterion("char_lm", dataclass=FairseqDataclass)
class CharLMCriterion(FairseqCriterion):
    """Cross entropy of a text's bytes, logged as bits per character; hands the model's memory on, with the task.

    A model returns logits (B, T, V) and a dict with its new ``memory``. Where the dict has ``span_loss`` (nats, a
    scalar, Sukhbaatar et al. 2019, eq. 6), it is added to the mean cross entropy. Where it has ``average_span`` (bytes)
    and ``spans`` (layers, H), the average and the mean of each layer, ``span_layer_0`` and so on, are logged.
    ``loss`` is the minimized quantity in bits, and ``bpc`` the cross entropy alone.
    """

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
