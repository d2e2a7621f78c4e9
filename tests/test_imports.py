import subprocess
import sys

import pytest


def test_imports_no_fairseq_and_configures_no_logging():
    """Not even where fairseq is at hand."""
    imports = "".join(
        f"import fairseq_poolingformer.{name}\nassert 'fairseq' not in sys.modules, '{name}'\n"
        for name in ("attention", "cli.score", "cli.convert")
    )
    check = "assert logging.getLogger().level == logging.WARNING and not logging.getLogger().handlers\n"
    subprocess.run([sys.executable, "-c", f"import logging, sys\n{imports}{check}"], check=True)


@pytest.mark.parametrize("command", ["main", "score"])
def test_commands_without_a_model_import_no_library_before_they_need_it(command):
    check = (
        f"import sys, fairseq_poolingformer.cli.{command}\n"
        "assert not {'torch', 'nltk', 'scipy', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", check], check=True)


@pytest.mark.full
@pytest.mark.parametrize(
    "imports",
    [
        "import fairseq_poolingformer.attention; fairseq_poolingformer.register()",
        "import fairseq.models, fairseq_poolingformer",
        "from fairseq_poolingformer.models import PoolingformerBART",
        # a notebook that used the attention, then fairseq's --user-dir
        "import fairseq_poolingformer.attention as a, argparse; from fairseq.utils import import_user_module as load; "
        "load(argparse.Namespace(user_dir=a.__file__.rsplit('/', 2)[0] + '/../fairseq_poolingformer'))",
    ],
)
def test_registration_does_not_depend_on_the_order(imports):
    check = f"""
{imports}
from fairseq import scoring, tasks
from fairseq.models import ARCH_MODEL_REGISTRY
assert "poolingformer_bart_base" in ARCH_MODEL_REGISTRY
assert {{"long_summarization", "question_answering"}} <= set(tasks.TASK_REGISTRY)
assert "rouge" in scoring.SCORER_REGISTRY
"""
    subprocess.run([sys.executable, "-c", check], check=True)
