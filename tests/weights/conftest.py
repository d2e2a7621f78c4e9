"""fairseq loads what the converter writes, so the plugin is registered, whichever file of tests runs."""

import fairseq_poolingformer
from fairseq_poolingformer.cli import convert

fairseq_poolingformer.register()


def run(*arguments) -> int:
    """Run poolingformer-convert in this process; its exit status."""
    return convert.main([str(argument) for argument in arguments])
