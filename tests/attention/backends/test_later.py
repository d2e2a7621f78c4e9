"""Other people's kernels are imported when they are first asked."""

import subprocess
import sys

import torch

from fairseq_poolingformer.attention import Window
from fairseq_poolingformer.attention.backends import BACKENDS
from fairseq_poolingformer.attention.call import Call

CODE = """
import sys
from fairseq_poolingformer.attention.backends import later
names = [f"{later.FOLDER}.{name}" for name in ("varlen", "flex", "self_check")]
print([name in sys.modules for name in names])
"""


def test_a_process_that_does_not_ask_imports_nothing():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[False, False, False]"


def test_they_answer_as_their_modules_do():
    x = torch.zeros(1, 1, 4, 8)
    call = Call.of(x, x, x, window=Window(1), dropout_p=0.5)
    assert BACKENDS["flex"].why_not(call) == "FlexAttention has no dropout"
    assert "needs an NVIDIA GPU" in BACKENDS["varlen"].why_not(call)
    assert BACKENDS["flex"].self_check(call) is None
