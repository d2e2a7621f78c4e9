"""fairseq's ``--task wikihop``: WikiHop and MedHop."""

from pathlib import Path

from fairseq.tasks import register_task
from torch import Tensor

from fairseq_poolingformer.downstream.wikihop import NO_ANSWER, WikihopExamples, WikihopPredictor, WikihopSplit
from fairseq_poolingformer.modules.wikihop_head import WikihopHead
from fairseq_poolingformer.tasks.document_task import DocumentTask, DocumentTaskConfig, choice_loss
from fairseq_poolingformer.text.data_folder import WIKIHOP


@register_task("wikihop", dataclass=DocumentTaskConfig)
class WikihopTask(DocumentTask):
    """Chooses the candidate that answers a question about several documents (Longformer, §6.1)."""

    kind = "wikihop"
    layout = WIKIHOP

    def build_head(self, embed_dim: int, dropout: float) -> WikihopHead:
        return WikihopHead(embed_dim, dropout)

    def build_examples(self, folder: Path, split: str, max_segments: int) -> WikihopExamples:
        arrays = WikihopSplit.open(folder, split)
        return WikihopExamples(arrays, self.symbols, self.cfg.max_positions, max_segments, self.uses_global_tokens)

    @staticmethod
    def loss(output: Tensor, target: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Cross entropy over the candidates; an example without an answer counts nothing."""
        return choice_loss(output, target["answer"], NO_ANSWER, "accuracy")

    def predictor(self, folder: Path, split: str) -> WikihopPredictor:
        return WikihopPredictor(folder, split)
