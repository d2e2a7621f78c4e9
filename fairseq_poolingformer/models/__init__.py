"""fairseq models; importing this registers them."""

from fairseq_poolingformer.models.bart import PoolingformerBART
from fairseq_poolingformer.models.char_lm import CharLanguageModel
from fairseq_poolingformer.models.roberta import PoolingformerRoberta

__all__ = ["CharLanguageModel", "PoolingformerBART", "PoolingformerRoberta"]
