"""XLM-R: RoBERTa with a vocabulary of sentencepiece's."""

from __future__ import annotations

from dataclasses import replace

from fairseq_poolingformer.weights.roberta import ROBERTA

XLM_ROBERTA = replace(
    ROBERTA,
    model_type="xlm-roberta",
    architecture="XLMRobertaForMaskedLM",
    poolingformer_arch="poolingformer_xlmr",
)
