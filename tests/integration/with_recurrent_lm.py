"""A module run with the tests' recurrent model: ``python -m tests.integration.with_recurrent_lm MODULE …``."""

import runpy
import sys

from tests import recurrent_lm  # noqa: F401

if __name__ == "__main__":
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
