"""fairseq models; importing this registers them."""

from .bart import PoolingformerBART

__all__ = ["PoolingformerBART"]
