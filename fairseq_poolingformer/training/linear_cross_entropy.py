"""fairseq's ``--criterion linear_cross_entropy``."""

from dataclasses import dataclass
from typing import Any

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from torch import Tensor, nn

from fairseq_poolingformer.options import option
from fairseq_poolingformer.training.token_losses import KEPT_LOGITS, linear_argmax, linear_cross_entropy


@dataclass
class LinearCrossEntropyConfig(LabelSmoothedCrossEntropyCriterionConfig):
    kept_logits: int = option(
        KEPT_LOGITS,
        "the most logits (tokens times symbols) to keep for the backward pass; the others are computed "
        "twice; 0 takes least memory",
    )


@register_criterion("linear_cross_entropy", dataclass=LinearCrossEntropyConfig)
class LinearCrossEntropyCriterion(LabelSmoothedCrossEntropyCriterion):
    """fairseq's ``label_smoothed_cross_entropy`` without a float32 copy of the logits, and with few of them kept."""

    def __init__(
        self,
        task,
        sentence_avg: bool,
        label_smoothing: float,
        ignore_prefix_size: int = 0,
        report_accuracy: bool = False,
        kept_logits: int = KEPT_LOGITS,
    ):
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        self.kept_logits = kept_logits
        self.logged = ("loss", "nll_loss", "ppl", *["accuracy"] * report_accuracy)

    def forward(self, model, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        """The loss of a batch."""
        if not reduce:
            raise ValueError(
                "reduce must be True: linear_cross_entropy gives sums only; label_smoothed_cross_entropy gives each "
                "token's loss"
            )
        layer = output_projection(model)
        net_output = model(**sample["net_input"], features_only=True)
        features, target = net_output[0], model.get_targets(sample, net_output)
        features = features[:, self.ignore_prefix_size :].flatten(0, 1)
        target = target[:, self.ignore_prefix_size :].flatten()
        loss, nll_loss = linear_cross_entropy(
            features,
            layer.weight,
            layer.bias,
            target,
            label_smoothing=self.eps,
            ignore_index=self.padding_idx,
            kept_logits=self.kept_logits,
        )
        sample_size = sample["target"].size(0) if self.sentence_avg else sample["ntokens"]
        logging_output = {
            "loss": loss.detach(),
            "nll_loss": nll_loss.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": sample["target"].size(0),
            "sample_size": sample_size,
        }
        if self.report_accuracy:
            logging_output |= self._accuracy(features, layer, target)
        return loss, sample_size, logging_output

    @torch.no_grad()
    def _accuracy(self, features: Tensor, layer: nn.Linear, target: Tensor) -> dict[str, int]:
        is_real = target.ne(self.padding_idx)
        best = linear_argmax(features[is_real], layer.weight, layer.bias)
        return {"n_correct": int(best.eq(target[is_real]).sum()), "total": int(is_real.sum())}


def output_projection(model) -> nn.Linear:
    """The linear layer from a decoder's features to the vocabulary."""
    decoder = getattr(model, "decoder", None)
    layer = getattr(decoder, "output_projection", None)
    instead = "use --criterion label_smoothed_cross_entropy"
    if not isinstance(layer, nn.Linear) or getattr(decoder, "adaptive_softmax", None) is not None:
        raise ValueError(
            f"--criterion linear_cross_entropy needs a decoder with a linear output_projection, "
            f"which {type(model).__name__} does not have; {instead}"
        )
    return layer
