"""fairseq models; importing this registers them."""

from .bart import PoolingformerBART
from .char_lm import CharLanguageModel
from .roberta import PoolingformerRoberta

__all__ = ["CharLanguageModel", "PoolingformerBART", "PoolingformerRoberta"]
