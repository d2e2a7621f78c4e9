"""QASPER (Dasigi et al. 2021): questions about a scientific paper, and the paragraphs that answer them.

The examples are HotpotQA's: a section of the paper is what a paragraph is there, a paragraph what a sentence is there,
and evidence what a supporting fact is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import ClassVar

from fairseq_poolingformer.tasks.hotpotqa.examples import HotpotqaSplit
from fairseq_poolingformer.text.data_folder import Layout


class AnswerType(IntEnum):
    """The kinds of answers, numbered as in the data folder and in the output layer."""

    SPAN = 0
    YES = 1
    NO = 2
    NONE = 3


@dataclass(frozen=True)
class QasperSplit(HotpotqaSplit):
    """One split; the text ``paragraphs`` has those of an example as they are in the release."""

    layout: ClassVar[Layout] = replace(
        HotpotqaSplit.layout, made_with="poolingformer-preprocess qasper", texts=("id", "paragraphs", "notes")
    )
