"""Poolingformers for transformers: its own encoders with two-level attention.

Importing this registers the models with ``AutoConfig`` and ``AutoModel…``. It needs transformers 5.23 or later and no
fairseq.
The classes are those of :data:`.families.FAMILIES` and :data:`.families.HEADS`, such as
``PoolingformerBartForConditionalGeneration``.
"""

from fairseq_poolingformer.extras import needing
from fairseq_poolingformer.private_names import tried_transformers

with needing("huggingface"):  # first what says which transformers the others need
    from fairseq_poolingformer.huggingface import configuration  # noqa: F401
with tried_transformers():
    from fairseq_poolingformer.huggingface import classes
    from fairseq_poolingformer.huggingface.families import FAMILIES

_made = [f"Poolingformer{family.name}{end}" for family in FAMILIES.values() for end in ("Config", *family.ends)]
globals().update({name: getattr(classes, name) for name in _made})
__all__ = _made
