"""Poolingformer-RoBERTa, Poolingformer-XLM-R, Longformer and the DeBERTa fusion: RoBERTa with other attention."""

from __future__ import annotations

import argparse
from typing import Any

from fairseq.models import register_model, register_model_architecture
from fairseq.models.roberta import RobertaModel
from fairseq.models.roberta.model import RobertaEncoder, roberta_base_architecture, roberta_large_architecture
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from fairseq.utils import safe_hasattr
from omegaconf import OmegaConf
from torch import Tensor

from fairseq_poolingformer.models.hub import PoolingformerRobertaHubInterface, load
from fairseq_poolingformer.models.loading import NEW, adapt_state_dict
from fairseq_poolingformer.modules.attention_flags import AttentionFlags, set_defaults
from fairseq_poolingformer.modules.encoder import PoolingformerEncoder
from fairseq_poolingformer.modules.positions import PartlyFrozenPositions
from fairseq_poolingformer.modules.question_answering_head import QuestionAnsweringHead
from fairseq_poolingformer.qa.answers import AnswerLogits
from fairseq_poolingformer.text.tokenizers import load_tokenizer

QA_HEAD = "question_answering_head"


class PoolingformerRobertaEncoder(RobertaEncoder):
    """RoBERTa's encoder and masked-language-model head around :class:`PoolingformerEncoder`."""

    def __init__(self, args, dictionary) -> None:
        super().__init__(args, dictionary)
        for module in self.modules():
            # by what it has: apex's LayerNorm, which fairseq may take, is no torch.nn.LayerNorm
            if hasattr(module, "normalized_shape"):
                module.eps = args.layer_norm_eps

    def build_encoder(self, args, dictionary, embed_tokens) -> PoolingformerEncoder:
        encoder = PoolingformerEncoder(TransformerConfig.from_namespace(args), dictionary, embed_tokens)
        encoder.apply(init_bert_params)
        return encoder

    def forward(
        self,
        src_tokens: Tensor,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        masked_tokens: Tensor | None = None,
        global_mask: Tensor | None = None,
        **unused: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Features, or logits of the masked-language-model head.

        Args:
            src_tokens: (B, T) indices.
            features_only: return features.
            return_all_hiddens: also return every layer's output.
            masked_tokens: (B, T) bool, the tokens to compute logits of; None for all.
            global_mask: (B, T) bool, True at global tokens; None for the first ``--global-tokens``.

        Returns:
            (B, T, C) features, (B, T, V) logits or (N, V) those of ``masked_tokens``; and ``inner_states``.
        """
        features, extra = self.extract_features(src_tokens, return_all_hiddens, global_mask=global_mask)
        return features if features_only else self.output_layer(features, masked_tokens), extra

    def extract_features(
        self, src_tokens: Tensor, return_all_hiddens: bool = False, global_mask: Tensor | None = None, **unused: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """(B, T, C) features and ``inner_states``, each (T, B, C); arguments as :meth:`forward`."""
        encoded = self.sentence_encoder(src_tokens, return_all_hiddens=return_all_hiddens, global_mask=global_mask)
        states = encoded["encoder_states"] if return_all_hiddens else None
        return encoded["encoder_out"][0].transpose(0, 1), {"inner_states": states}


@register_model("poolingformer_roberta")
class PoolingformerRoberta(RobertaModel):
    """RoBERTa with two-level attention (ICML §3.2, thesis §3.2).

    Level two off (``--pooled-layers none``) and ``--separate-global-projections`` on, it is Longformer; with
    ``--relative-attention``, the DeBERTa fusion (thesis §2.4).
    ``--restore-file`` and ``--finetune-from-model`` take fairseq's ``roberta.*`` and ``xlmr.*`` as they are: see
    :func:`~.loading.adapt_state_dict`.
    """

    def __init__(self, args, encoder) -> None:
        super().__init__(args, encoder)
        if getattr(args, "freeze_pretrained", False):
            self._freeze(args.pretrained_positions)

    @staticmethod
    def add_args(parser: argparse.ArgumentParser) -> None:
        """Add RoBERTa's flags, those of the two levels, and how to train."""
        RobertaModel.add_args(parser)
        AttentionFlags.add_args(parser)
        add = parser.add_argument
        add("--checkpoint-activations", action="store_true", help="recompute each layer's activations in the backward")
        add("--offload-activations", action="store_true", help="checkpoint activations, and keep them on the CPU")
        add(
            "--freeze-pretrained",
            action="store_true",
            help="train only the parameters that RoBERTa lacks, new or loaded: positions from "
            "--pretrained-positions on, relative positions and their projections, level two, the heads of a task",
        )
        positions = "no_token_positional_embeddings"  # fairseq's name
        add("--absolute-positions", action="store_false", dest=positions, help="add learned positions to the input")
        add("--no-absolute-positions", action="store_true", dest=positions, help="do not (the default with DeBERTa's)")
        add("--layer-norm-eps", type=float, metavar="E", help="added to variances (default: 1e-5; DeBERTa's is 1e-7)")
        add("--pretrained-positions", type=int, metavar="N", help="positions of the pretrained model (default: 512)")

    @classmethod
    def hub_models(cls) -> dict[str, str]:
        return {}

    @classmethod
    def build_model(cls, args, task) -> PoolingformerRoberta:
        """The model with the task's dictionary."""
        if OmegaConf.is_config(args):
            OmegaConf.set_struct(args, False)
        if not safe_hasattr(args, "max_positions"):
            args.max_positions = 4096
        poolingformer_roberta_base(args)
        if args.no_token_positional_embeddings and args.relative_attention == "none":
            raise ValueError(
                "--no-absolute-positions without --relative-attention leaves the model without any positions: add "
                "--relative-attention c2p,p2c, or give --absolute-positions"
            )
        return cls(args, PoolingformerRobertaEncoder(args, task.source_dictionary))

    @classmethod
    def from_pretrained(
        cls,
        model_name_or_path: str,
        checkpoint_file: str = "model.pt",
        data_name_or_path: str = ".",
        **kwargs: Any,
    ) -> PoolingformerRobertaHubInterface:
        """A model for use in Python.

        Args:
            model_name_or_path: folder of the checkpoint.
            checkpoint_file: its name in there.
            data_name_or_path: data folder with the dictionary and tokenizer; one that begins with a dot is looked up
                from the model's folder.
            kwargs: overrides of the checkpoint's settings.
        """
        loaded, folder = load(model_name_or_path, checkpoint_file, data_name_or_path, "dict.txt", **kwargs)
        return PoolingformerRobertaHubInterface(
            loaded["args"], loaded["task"], loaded["models"][0], load_tokenizer(folder)
        )

    def forward(
        self,
        src_tokens: Tensor,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        classification_head_name: str | None = None,
        answer_places: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor | AnswerLogits, dict[str, Any]]:
        """RoBERTa's forward pass, or answers.

        Args:
            src_tokens: (B, T) indices.
            features_only: features instead of logits of the masked-language-model head.
            return_all_hiddens: also return every layer's output.
            classification_head_name: logits of one of fairseq's classification heads.
            answer_places: what :class:`QuestionAnsweringHead` takes beside features: logits of answers are wanted.
            kwargs: see :meth:`PoolingformerRobertaEncoder.forward`.

        Returns:
            (B, T, C) features, (B, T, V) logits, or :class:`AnswerLogits`; and fairseq's extra outputs.
        """
        if answer_places is None:
            return super().forward(src_tokens, features_only, return_all_hiddens, classification_head_name, **kwargs)
        features, extra = self.encoder(src_tokens, True, return_all_hiddens, **kwargs)
        return self.question_answering_head(features, **answer_places), extra

    def register_question_answering_head(self) -> None:
        """Add the heads of the question answering task (ICML §3.2)."""
        self.add_module(QA_HEAD, QuestionAnsweringHead(self.args.encoder_embed_dim, self.args.dropout))

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Take RoBERTa's, XLM-R's and older checkpoints; a head that either side lacks is left out or kept."""
        super().upgrade_state_dict_named(state_dict, name)
        if name == "":
            pooled_init = AttentionFlags.of(self.args).pooled_init
            adapt_state_dict(self, state_dict, offset=self.encoder.dictionary.pad() + 1, pooled_init=pooled_init)

    def _freeze(self, pretrained_positions: int) -> None:
        """Let only new parameters be trained: those of NEW, and absolute positions beyond the pretrained ones."""
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(any(part in name for part in NEW))
        encoder = self.encoder.sentence_encoder
        if encoder.embed_positions is None:
            return
        frozen_rows = pretrained_positions + encoder.padding_idx + 1
        if frozen_rows < encoder.embed_positions.num_embeddings:
            encoder.embed_positions = PartlyFrozenPositions(encoder.embed_positions, frozen_rows)


def _attention(args: argparse.Namespace, pooled_layers: str) -> None:
    """Defaults of every architecture: the papers' settings and 4,096 tokens."""
    set_defaults(args, max_positions=4096, pretrained_positions=512, layer_norm_eps=1e-5, pooled_layers=pooled_layers)
    set_defaults(args, **vars(AttentionFlags.of(args)))


@register_model_architecture("poolingformer_roberta", "poolingformer_roberta_large")
def poolingformer_roberta_large(args: argparse.Namespace) -> None:
    """24 layers, d 1024, 16 heads; level two in layers 15–20."""
    _attention(args, pooled_layers="15-20")
    roberta_large_architecture(args)


@register_model_architecture("poolingformer_roberta", "poolingformer_roberta_base")
def poolingformer_roberta_base(args: argparse.Namespace) -> None:
    """12 layers, d 768, 12 heads; level two in layers 6–8."""
    _attention(args, pooled_layers="6-8")
    roberta_base_architecture(args)


@register_model_architecture("poolingformer_roberta", "poolingformer_roberta_tiny")
def poolingformer_roberta_tiny(args: argparse.Namespace) -> None:
    """2 layers, d 64, 4 heads; level two in layer 1. For tests and first steps."""
    set_defaults(args, encoder_layers=2, encoder_embed_dim=64, encoder_ffn_embed_dim=256, encoder_attention_heads=4)
    _attention(args, pooled_layers="1")
    roberta_base_architecture(args)


# XLM-R is RoBERTa with a vocabulary of 250,002 pieces, which is the data folder's.
register_model_architecture("poolingformer_roberta", "poolingformer_xlmr_large")(poolingformer_roberta_large)
register_model_architecture("poolingformer_roberta", "poolingformer_xlmr_base")(poolingformer_roberta_base)


def _longformer(args: argparse.Namespace) -> None:
    """Longformer: one level, one-sided window 256, global projections of their own (Longformer §5)."""
    set_defaults(args, window_size="256", separate_global_projections=True)
    _attention(args, pooled_layers="none")


@register_model_architecture("poolingformer_roberta", "longformer_roberta_tiny")
def longformer_roberta_tiny(args: argparse.Namespace) -> None:
    """A Longformer of the size of ``poolingformer_roberta_tiny``."""
    _longformer(args)
    poolingformer_roberta_tiny(args)


@register_model_architecture("poolingformer_roberta", "longformer_roberta_large")
def longformer_roberta_large(args: argparse.Namespace) -> None:
    """Longformer-large."""
    _longformer(args)
    roberta_large_architecture(args)


@register_model_architecture("poolingformer_roberta", "longformer_roberta_base")
def longformer_roberta_base(args: argparse.Namespace) -> None:
    """Longformer-base."""
    _longformer(args)
    roberta_base_architecture(args)


def _deberta(args: argparse.Namespace) -> None:
    """The fusion: DeBERTa's scores in level one, no absolute positions (thesis §2.4)."""
    set_defaults(args, relative_attention="c2p,p2c", no_token_positional_embeddings=True)


@register_model_architecture("poolingformer_roberta", "poolingformer_deberta_large")
def poolingformer_deberta_large(args: argparse.Namespace) -> None:
    """24 layers, d 1024, 16 heads; level two in layers 15–20."""
    _deberta(args)
    poolingformer_roberta_large(args)


@register_model_architecture("poolingformer_roberta", "poolingformer_deberta_base")
def poolingformer_deberta_base(args: argparse.Namespace) -> None:
    """12 layers, d 768, 12 heads; level two in layers 6–8."""
    _deberta(args)
    poolingformer_roberta_base(args)


@register_model_architecture("poolingformer_roberta", "poolingformer_deberta_tiny")
def poolingformer_deberta_tiny(args: argparse.Namespace) -> None:
    """2 layers, d 64, 4 heads; level two in layer 1. For tests and first steps."""
    _deberta(args)
    poolingformer_roberta_tiny(args)
