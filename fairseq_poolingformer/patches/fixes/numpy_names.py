"""Names that numpy has removed and fairseq still uses."""

import types
from typing import Any

import numpy


class _NumpyWithFormerNames(types.ModuleType):
    """numpy, with the few former names that fairseq's text paths use.

    It replaces ``np`` in the modules that need it. Other libraries, which may test whether the names exist, see numpy
    itself.
    """

    compat = types.SimpleNamespace(long=int)  # removed in numpy 2.0
    int = int  # removed in numpy 1.24
    float = float

    def __getattr__(self, name: str) -> Any:
        return getattr(numpy, name)

    @staticmethod
    def percentile(a: Any, q: Any, *args: Any, interpolation: str | None = None, **kwargs: Any) -> Any:
        """``numpy.percentile`` that also knows ``method`` by its former name, ``interpolation``."""
        if interpolation is not None:
            kwargs["method"] = interpolation
        return numpy.percentile(a, q, *args, **kwargs)


def apply() -> None:
    """Give fairseq's modules the numpy names they were written with.

    - ``np.compat.long``: ``--sample-break-mode eos`` (token_block_dataset) and ``--num-batch-buckets``
      (language_pair_dataset);
    - ``np.percentile(interpolation=)``: ``--num-batch-buckets`` (data_utils.get_buckets);
    - ``np.int``: span masking (data_utils); ``np.float``: the CRF layer of the non-autoregressive models.
    """
    from fairseq.data import data_utils, language_pair_dataset, token_block_dataset
    from fairseq.modules import dynamic_crf_layer

    for module in (data_utils, language_pair_dataset, token_block_dataset, dynamic_crf_layer):
        if module.np is numpy:
            module.np = _NumpyWithFormerNames("numpy")
