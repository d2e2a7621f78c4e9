"""PEFT is imported when somebody asks for it; test_training.py says what it then adapts."""

import subprocess
import sys

import pytest


def test_peft_is_imported_by_others_alone():
    pytest.importorskip("peft")
    program = (
        "import sys, fairseq_poolingformer.huggingface as own\n"
        "config = own.PoolingformerBartConfig()\n"
        "config.to_dict()\n"
        "assert 'peft' not in sys.modules\n"
        "import peft\n"
        "config.to_dict()\n"
        "print(peft.utils.constants.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING['poolingformer-bart'])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['q_proj', 'v_proj', 'pooled_q_proj', 'pooled_v_proj']"
