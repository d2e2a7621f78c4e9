"""ContractNLI (Koreeda and Manning 2021): hypotheses about a contract, and the spans that prove them.

The examples are HotpotQA's: the hypothesis is the question, what the contract says of it the kind of answer, a span of
the contract a sentence, and evidence a supporting fact. No example has an answer in the text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fairseq_poolingformer.tasks.hotpotqa.examples import HotpotqaSplit
from fairseq_poolingformer.text.data_folder import Layout


@dataclass(frozen=True)
class ContractNliSplit(HotpotqaSplit):
    """One split; the text ``id`` has the ids of the document and of the hypothesis, as JSON."""

    layout: ClassVar[Layout] = replace(
        HotpotqaSplit.layout, made_with="poolingformer-preprocess contract_nli", texts=("id",)
    )
