"""A package for ``--user-dir``: the plugin, and the task ``masked_names``."""

import fairseq_poolingformer
from run_scripts.evidence import masked_names  # noqa: F401  (registers the task)

fairseq_poolingformer.register()
