"""Fixtures of character models and of a parallel corpus; those of finetune need no fairseq."""

from importlib.util import find_spec

if find_spec("fairseq"):
    from tests.char_lm.conftest import char_lm_checkpoint, checkpoint, data_folder, forgetful_checkpoint  # noqa: F401
    from tests.patches.conftest import corpus, dictionary  # noqa: F401
