"""Poolingformer-RoBERTa, Poolingformer-XLM-R, Longformer and the DeBERTa fusion: RoBERTa with other attention."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq.models import register_model
from fairseq.models.roberta import RobertaModel
from fairseq.models.roberta.model import RobertaEncoder, roberta_base_architecture, roberta_large_architecture
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from fairseq.utils import safe_hasattr
from torch import Tensor, nn

from fairseq_poolingformer.models.compiled import add_flag
from fairseq_poolingformer.models.encoder import PoolingformerEncoder
from fairseq_poolingformer.models.hub import PoolingformerRobertaHubInterface
from fairseq_poolingformer.models.positions import PartlyFrozenPositions
from fairseq_poolingformer.models.pretrained import (
    Architecture,
    LoadsCheckpoints,
    as_namespace,
    register_architectures,
    set_architecture,
)
from fairseq_poolingformer.settings import PAPER_LAYERS, TwoLevelFlags
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from fairseq_poolingformer.training.optimizers import HEAD
from fairseq_poolingformer.weights.loading import is_new
from fairseq_poolingformer.weights.special_tokens import NAMES, encode_names


class PoolingformerRobertaEncoder(RobertaEncoder):
    """RoBERTa's encoder and masked-language-model head around :class:`PoolingformerEncoder`."""

    def __init__(self, args, dictionary) -> None:
        super().__init__(args, dictionary)
        for module in self.modules():
            # fairseq may use apex's LayerNorm, which is no torch.nn.LayerNorm; both have normalized_shape
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
        """(B, T, C) features, or (B, T, V) logits, (N, V) of ``masked_tokens`` alone; and ``inner_states``."""
        # ``masked_tokens`` (B, T) bool, None for all; ``global_mask`` (B, T) bool, None for the first --global-tokens
        features, extra = self.extract_features(src_tokens, return_all_hiddens, global_mask)
        return features if features_only else self.output_layer(features, masked_tokens), extra

    def extract_features(
        self, src_tokens: Tensor, return_all_hiddens: bool = False, global_mask: Tensor | None = None, **unused: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """(B, T, C) features and ``inner_states``, each (T, B, C); arguments as :meth:`forward`."""
        encoded = self.sentence_encoder(src_tokens, return_all_hiddens=return_all_hiddens, global_mask=global_mask)
        (features,), states = encoded["encoder_out"], encoded["encoder_states"] if return_all_hiddens else None
        return features.transpose(0, 1), {"inner_states": states}


@register_model("poolingformer_roberta")
class PoolingformerRoberta(LoadsCheckpoints, RobertaModel):
    """RoBERTa with two-level attention (ICML §3.2, thesis §3.2).

    With ``--pooled-layers none`` and ``--separate-global-projections`` it is Longformer; with
    ``--relative-attention`` it is the DeBERTa fusion (thesis §2.4).
    ``--restore-file`` and ``--finetune-from-model`` take fairseq's ``roberta.*`` and ``xlmr.*`` as they are: see
    :func:`~.weights.loading.adapt_state_dict`.
    """

    dictionary_file = "dict.txt"

    def __init__(self, args, encoder) -> None:
        super().__init__(args, encoder)
        self.head_name: str | None = None
        if getattr(args, "freeze_pretrained", False):
            self._freeze(args.pretrained_positions)

    @staticmethod
    def add_args(parser: argparse.ArgumentParser) -> None:
        """Add RoBERTa's flags, those of the two levels, and how to train."""
        RobertaModel.add_args(parser)
        TwoLevelFlags.add_args(parser)
        add_flag(parser)
        add = parser.add_argument
        add("--checkpoint-activations", action="store_true", help="recompute each layer in the backward pass")
        add("--offload-activations", action="store_true", help="--checkpoint-activations, and keep them on the CPU")
        text = "train only the parameters that RoBERTa lacks, new or loaded: positions from --pretrained-positions on, "
        text += "relative positions and their projections, level two, the heads of a task"
        add("--freeze-pretrained", action="store_true", help=text)
        positions = "no_token_positional_embeddings"  # fairseq's name
        add("--absolute-positions", action="store_false", dest=positions, help="add learned positions to the input")
        add("--no-absolute-positions", action="store_true", dest=positions, help="do not (the default with DeBERTa's)")
        add("--layer-norm-eps", type=float, metavar="E", help="added to variances (default: 1e-5; DeBERTa's is 1e-7)")
        add("--pretrained-positions", type=int, metavar="N", help="positions of the pretrained model (default: 512)")

    @classmethod
    def hub_interface(cls, loaded: Mapping[str, Any], data_folder: Path) -> PoolingformerRobertaHubInterface:
        tokenizer = load_tokenizer(data_folder)
        return PoolingformerRobertaHubInterface(loaded["args"], loaded["task"], loaded["models"][0], tokenizer)

    @classmethod
    def build_model(cls, args, task) -> PoolingformerRoberta:
        """Build the model with the task's dictionary, whose last symbols are the task's ``marks``, if it has some."""
        args = as_namespace(cls, args)
        if not safe_hasattr(args, "max_positions"):
            args.max_positions = 4096
        set_architecture(*ARCHITECTURES["poolingformer_roberta_base"], args)
        if args.no_token_positional_embeddings and args.relative_attention == "none":
            raise ValueError(
                "--no-absolute-positions without --relative-attention leaves the model without any positions: add "
                "--relative-attention c2p,p2c, or give --absolute-positions"
            )
        model = cls(args, PoolingformerRobertaEncoder(args, task.source_dictionary))
        if marks := getattr(task, "marks", ()):
            model.register_buffer(NAMES, encode_names(marks))
        return model

    def forward(
        self,
        src_tokens: Tensor,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        classification_head_name: str | None = None,
        head_inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, dict[str, Any]]:
        """Compute RoBERTa's forward pass, or a head's: the task's gets ``head_inputs`` beside (B, T, C) features."""
        if head_inputs is None:
            return super().forward(src_tokens, features_only, return_all_hiddens, classification_head_name, **kwargs)
        features, extra = self.encoder(src_tokens, True, return_all_hiddens, **kwargs)
        return self.get_submodule(self.head_name)(features, **head_inputs), extra

    def register_head(self, name: str, head: nn.Module) -> None:
        """Add a task's head, which takes (B, T, C) features and ``head_inputs``, and freeze the language model's."""
        if not name.isidentifier() or self.head_name is not None:
            raise ValueError(f"name must be letters, digits and _, for a model without a head; got {name}")
        self.head_name = f"{name}_head"
        self.add_module(self.head_name, head)
        for parameter in head.parameters():
            parameter.param_group = HEAD  # for --head-lr
        # DistributedDataParallel would wait for gradients that never come; the shared embedding gets some
        embedding = self.encoder.sentence_encoder.embed_tokens.weight
        for parameter in self.encoder.lm_head.parameters():
            if parameter is not embedding:
                parameter.requires_grad_(False)

    def leave_out_global_parameters(self) -> None:
        """Leave out of training what global tokens alone use, for a task without any: no gradient would come for it."""
        for name, parameter in self.named_parameters():
            if "global_" in name:
                parameter.requires_grad_(False)

    def _freeze(self, pretrained_positions: int) -> None:
        """Freeze all parameters but new ones (:func:`is_new`) and absolute positions beyond the pretrained ones."""
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(is_new(name))
        encoder = self.encoder.sentence_encoder
        if encoder.embed_positions is None:
            return
        frozen_rows = pretrained_positions + encoder.padding_idx + 1
        if frozen_rows < encoder.embed_positions.num_embeddings:
            encoder.embed_positions = PartlyFrozenPositions(encoder.embed_positions, frozen_rows)


_COMMON = {"max_positions": 4096, "pretrained_positions": 512, "layer_norm_eps": 1e-5}
_LARGE = _COMMON | {"pooled_layers": PAPER_LAYERS["roberta_large"]}
_BASE = _COMMON | {"pooled_layers": PAPER_LAYERS["roberta_base"]}
_TINY = _COMMON | {  # for tests and first steps
    "encoder_layers": 2,
    "encoder_embed_dim": 64,
    "encoder_ffn_embed_dim": 256,
    "encoder_attention_heads": 4,
    "pooled_layers": "1",
}
_LONGFORMER = {  # Longformer §5: one level, and the global tokens have their own projections
    "window_size": "256",
    "separate_global_projections": True,
    "pooled_layers": "none",
}
_DEBERTA = {  # thesis §2.4: DeBERTa's scores in level one take the place of absolute positions
    "relative_attention": "c2p,p2c",
    "no_token_positional_embeddings": True,
}

# pooled_layers counts from 0
ARCHITECTURES: dict[str, Architecture] = {
    "poolingformer_roberta_large": (roberta_large_architecture, _LARGE),
    "poolingformer_roberta_base": (roberta_base_architecture, _BASE),
    "poolingformer_roberta_tiny": (roberta_base_architecture, _TINY),
    # XLM-R is RoBERTa with 250,002 pieces, and the data folder gives the vocabulary
    "poolingformer_xlmr_large": (roberta_large_architecture, _LARGE),
    "poolingformer_xlmr_base": (roberta_base_architecture, _BASE),
    "longformer_roberta_large": (roberta_large_architecture, _LARGE | _LONGFORMER),
    "longformer_roberta_base": (roberta_base_architecture, _BASE | _LONGFORMER),
    "longformer_roberta_tiny": (roberta_base_architecture, _TINY | _LONGFORMER),
    "poolingformer_deberta_large": (roberta_large_architecture, _LARGE | _DEBERTA),
    "poolingformer_deberta_base": (roberta_base_architecture, _BASE | _DEBERTA),
    "poolingformer_deberta_tiny": (roberta_base_architecture, _TINY | _DEBERTA),
}
register_architectures("poolingformer_roberta", ARCHITECTURES)
