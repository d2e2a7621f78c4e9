"""Poolingformer-RoBERTa with the heads of this package's tasks, for transformers: fairseq runs the same heads.

These classes predict; the losses are fairseq's tasks'. A task's head joins the segments of an example, of which a batch
may have several: ``example`` says whose each row is, by default each row's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers.models.roberta.modeling_roberta import RobertaPreTrainedModel
from transformers.utils import ModelOutput

from fairseq_poolingformer.huggingface.base import TwoLevelModel
from fairseq_poolingformer.huggingface.configuration import PoolingformerRobertaConfig
from fairseq_poolingformer.huggingface.packaged import Packaged
from fairseq_poolingformer.huggingface.padding import Rows
from fairseq_poolingformer.huggingface.roberta import PoolingformerRobertaModel
from fairseq_poolingformer.tasks.coreference.head import CoreferenceHead
from fairseq_poolingformer.tasks.hotpotqa.head import HotpotqaHead
from fairseq_poolingformer.tasks.question_answering.head import QuestionAnsweringHead
from fairseq_poolingformer.tasks.wikihop.head import WikihopHead


@dataclass
class HeadOutput(ModelOutput):
    """The output of a task's head.

    Attributes:
        logits: what the head returns.
        hidden_states, attentions: of the encoder, where they are asked for.
    """

    logits: Any = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Any, ...] | None = None


class _WithTaskHead(Packaged, TwoLevelModel, RobertaPreTrainedModel):
    """A task's head on :class:`PoolingformerRobertaModel`.

    Attributes:
        head_name: the attribute that has the head.
    """

    config_class = PoolingformerRobertaConfig
    head_name: ClassVar[str]

    def __init__(self, config: PoolingformerRobertaConfig) -> None:
        super().__init__(config)
        self.roberta = PoolingformerRobertaModel(config, add_pooling_layer=False)
        self.add_module(self.head_name, self._head(config))
        self.post_init()

    @staticmethod
    def _head(config: PoolingformerRobertaConfig) -> nn.Module:
        raise NotImplementedError

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **inputs: Any,
    ) -> HeadOutput:
        """Compute the encoder's features and the head's output.

        Args:
            input_ids: (N, T) segments.
            attention_mask: (N, T), 1 at real tokens, padding on the right; None without padding.
            global_attention_mask: (N, T), 1 at global tokens; None for the first ``config.global_tokens`` ones.
            inputs_embeds: (N, T, C) in place of ``input_ids``.
            output_attentions, output_hidden_states, return_dict: as transformers has them.
            inputs: the arguments of the head's own ``forward`` beside the features.

        Raises:
            ValueError: padding is on the left.
        """
        if Rows.of(attention_mask).order is not None:
            raise ValueError('this head takes padding on the right: give the tokenizer padding_side="right"')
        encoded = self.roberta(
            input_ids,
            attention_mask,
            inputs_embeds=inputs_embeds,
            global_attention_mask=global_attention_mask,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            return_dict=True,
        )
        features = encoded.last_hidden_state
        logits = getattr(self, self.head_name)(features, **self._with_examples(inputs, features))
        output = HeadOutput(logits, encoded.hidden_states, encoded.attentions)
        return output.to_tuple() if return_dict is False else output

    def _with_examples(self, inputs: dict[str, Any], features: Tensor) -> dict[str, Any]:
        """Return the head's arguments, where each row is an example unless they say otherwise."""
        example = inputs.get("example")
        if example is None:
            example = torch.arange(len(features), device=features.device)
        return {"num_examples": int(example.max()) + 1, **inputs, "example": example}


class PoolingformerRobertaForNaturalQuestions(_WithTaskHead):
    """Poolingformer-RoBERTa that finds long and short answers; see :class:`QuestionAnsweringHead` for its inputs."""

    head_name = "question_answering_head"

    @staticmethod
    def _head(config: PoolingformerRobertaConfig) -> nn.Module:
        return QuestionAnsweringHead(config.hidden_size, config.hidden_dropout_prob)

    def _with_examples(self, inputs: dict[str, Any], features: Tensor) -> dict[str, Any]:
        return inputs  # its segments stay apart


class PoolingformerRobertaForWikihop(_WithTaskHead):
    """Poolingformer-RoBERTa that chooses a candidate, whose marks it scores; see :class:`WikihopHead`."""

    head_name = "wikihop_head"

    @staticmethod
    def _head(config: PoolingformerRobertaConfig) -> nn.Module:
        return WikihopHead(config.hidden_size, config.hidden_dropout_prob, getattr(config, "segment_logits", "sum"))


class PoolingformerRobertaForHotpotqa(_WithTaskHead):
    """Poolingformer-RoBERTa with spans, kinds of answers, and scores at the marks of paragraphs and sentences.

    See :class:`HotpotqaHead` for its inputs.
    """

    head_name = "hotpotqa_head"

    @staticmethod
    def _head(config: PoolingformerRobertaConfig) -> nn.Module:
        return HotpotqaHead(config.hidden_size, config.hidden_dropout_prob)


class PoolingformerRobertaForCoreference(_WithTaskHead):
    """Poolingformer-RoBERTa that finds mentions and their antecedents; see :class:`CoreferenceHead`."""

    head_name = "coreference_head"

    @staticmethod
    def _head(config: PoolingformerRobertaConfig) -> nn.Module:
        names = {"coreference_depth": "depth", "head_hidden": "hidden"}
        sizes = ("segment_distances", "max_span_width", "span_ratio", "max_antecedents", *names)
        given = {names.get(name, name): getattr(config, name) for name in sizes if hasattr(config, name)}
        return CoreferenceHead(config.hidden_size, **given)
