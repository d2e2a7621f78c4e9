from tests.char_lm.conftest import char_lm_checkpoint, checkpoint, data_folder, forgetful_checkpoint  # noqa: F401
from tests.patches.conftest import corpus, dictionary  # noqa: F401
