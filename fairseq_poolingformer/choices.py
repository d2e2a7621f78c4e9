"""Values that settings of the attention take; flags are made of them without torch."""

ALIGNMENTS = ("grid", "query")
BACKEND_NAMES = ("triton", "block", "reference", "sdpa")  # in order; attention/backends has them
UNLIMITED = 2**40  # taps on one side of a window; more than any sequence has
POOL_TYPES = ("ldconv", "mean-ldconv", "mean", "max")
POOL_MERGES = ("sum", "softmax")
