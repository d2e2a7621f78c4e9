"""What must work without fairseq, and registration whatever was imported first."""

import subprocess
import sys

import pytest

WITHOUT_FAIRSEQ = "import sys; sys.modules['fairseq'] = None; "


@pytest.mark.parametrize(
    "module",
    [
        "attention",
        "scoring.rouge",
        "scoring.sentences",
        "text.tokenizers",
        "text.dictionary",
        "cli.score",
        "cli.score_qa",
        "qa.answers",
        "qa.labels",
        "qa.predictions",
    ],
)
def test_needs_no_fairseq(module):
    subprocess.run([sys.executable, "-c", WITHOUT_FAIRSEQ + f"import fairseq_poolingformer.{module}"], check=True)


@pytest.mark.parametrize("first", ["fairseq_poolingformer.attention", "fairseq_poolingformer.models", "fairseq.models"])
def test_registration_does_not_depend_on_the_order(first):
    check = (
        f"import {first}, fairseq_poolingformer\n"
        "from fairseq import scoring, tasks\n"
        "from fairseq.models import ARCH_MODEL_REGISTRY\n"
        "assert 'poolingformer_bart_base' in ARCH_MODEL_REGISTRY\n"
        "assert 'long_summarization' in tasks.TASK_REGISTRY\n"
        "assert 'question_answering' in tasks.TASK_REGISTRY\n"
        "assert 'rouge' in scoring.SCORER_REGISTRY\n"
    )
    subprocess.run([sys.executable, "-c", check], check=True)
