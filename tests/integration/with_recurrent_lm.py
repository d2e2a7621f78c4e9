"""A command with the tests' recurrent model: ``python -m tests.integration.with_recurrent_lm NAME …``."""

import sys
from importlib import import_module

from tests import recurrent_lm  # noqa: F401

if __name__ == "__main__":
    sys.exit(import_module(f"fairseq_poolingformer.cli.{sys.argv[1]}").main(sys.argv[2:]))
