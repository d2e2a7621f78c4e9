"""fairseq loads what the converter writes, so the plugin is registered, whichever file of tests runs."""

from importlib.util import find_spec

import fairseq_poolingformer
from fairseq_poolingformer.cli import convert

if find_spec("fairseq"):
    fairseq_poolingformer.register()


def run(*arguments) -> int:
    """Run poolingformer-convert in this process; its exit status."""
    return convert.main([str(argument) for argument in arguments])
