"""fairseq models; importing this registers them."""

from .bart import PoolingformerBART
from .roberta import PoolingformerRoberta

__all__ = ["PoolingformerBART", "PoolingformerRoberta"]
