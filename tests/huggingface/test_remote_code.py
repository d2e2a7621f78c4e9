"""Folders that open with ``trust_remote_code`` where this package is not installed."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import torch
import transformers
from transformers import AutoConfig
from transformers.dynamic_module_utils import get_relative_import_files

import fairseq_poolingformer.huggingface
from fairseq_poolingformer.huggingface import (
    PoolingformerBartForConditionalGeneration,
    PoolingformerMBartForConditionalGeneration,
    PoolingformerRobertaForMaskedLM,
    remote_code,
)
from tests.huggingface.test_bart import LEVELS, outputs
from tests.models import tiny_huggingface
from tests.weights.test_roberta import batch

ROOT = Path(fairseq_poolingformer.__file__).parent

ELSEWHERE = """
import sys
sys.modules["fairseq_poolingformer"] = None  # as if it were not installed
sys.modules["torchaudio"] = None
import torch
from transformers import AutoModelForMaskedLM, AutoModelForQuestionAnswering, AutoModelForSeq2SeqLM
folder, inputs = sys.argv[1], torch.load(sys.argv[1] + "/inputs.pt")
with torch.no_grad():
    bart = AutoModelForSeq2SeqLM.from_pretrained(folder + "/bart", trust_remote_code=True).eval()
    roberta = AutoModelForMaskedLM.from_pretrained(folder + "/roberta", trust_remote_code=True).eval()
    written = [bart(**inputs["bart"]).logits, roberta(**inputs["roberta"]).logits]
    roberta.save_pretrained(folder + "/again")
    again = AutoModelForMaskedLM.from_pretrained(folder + "/again", trust_remote_code=True).eval()
    written.append(again(**inputs["roberta"]).logits)
    AutoModelForQuestionAnswering.from_pretrained(folder + "/again", trust_remote_code=True)
assert type(bart).__module__.startswith("transformers_modules"), type(bart).__module__
torch.save(written, folder + "/outputs.pt")
"""

OLD = """
import sys
sys.modules["fairseq_poolingformer"] = None
sys.modules["torchaudio"] = None
import transformers
transformers.__version__ = "5.3.0"
from transformers import AutoModelForSeq2SeqLM
AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1], trust_remote_code=True)
"""


def body(source):
    """A module without its imports."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(getattr(node, "body", None), list):
            node.body = [item for item in node.body if not isinstance(item, (ast.Import, ast.ImportFrom))]
    return [item for item in tree.body if not isinstance(item, ast.Try)], tree


def test_folders_open_without_the_package_and_compute_the_same(tmp_path):
    sdpa = {"attn_implementation": "sdpa"}  # as in the other process
    bart = PoolingformerBartForConditionalGeneration.from_short(tiny_huggingface.model("bart", **sdpa), **LEVELS)
    roberta = PoolingformerRobertaForMaskedLM.from_short(
        tiny_huggingface.model("roberta", **sdpa), **LEVELS, relative_attention="c2p,p2c", max_relative_positions=4
    )
    bart.save_pretrained(tmp_path / "bart")
    roberta.save_pretrained(tmp_path / "roberta")
    (source, target), tokens = tiny_huggingface.batch(), batch()
    inputs = {"input_ids": source, "attention_mask": source.ne(1).long(), "decoder_input_ids": target}
    torch.save(
        {"bart": inputs, "roberta": {"input_ids": tokens, "attention_mask": tokens.ne(1).long()}},
        tmp_path / "inputs.pt",
    )
    environment = {**os.environ, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", ELSEWHERE, str(tmp_path)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = torch.load(tmp_path / "outputs.pt")
    with torch.no_grad():
        expected = roberta(tokens, attention_mask=tokens.ne(1).long()).logits
    assert torch.equal(found[0], outputs(bart, source, target)[1])
    assert torch.equal(found[1], expected)
    assert torch.equal(found[2], expected)


def test_an_old_transformers_is_named(tmp_path):
    """With and without this package."""
    PoolingformerBartForConditionalGeneration.from_short(tiny_huggingface.model("bart"), **LEVELS).save_pretrained(
        tmp_path / "bart"
    )
    environment = {**os.environ, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    package = "import transformers\ntransformers.__version__ = '4.57.6'\nimport fairseq_poolingformer.huggingface"
    for program in (OLD, package):
        command = [sys.executable, "-c", program, str(tmp_path / "bart")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        last = done.stderr.strip().splitlines()[-1]
        assert last.startswith("ImportError: Poolingformers need transformers 5.5 or later, and this is "), done.stderr


def test_the_files_are_the_packages_modules_but_for_imports():
    written = remote_code.files()
    for name, text in written.items():
        origin = re.match(r"# Generated from fairseq_poolingformer/(\S+) ", text)[1]
        (ours, _), (theirs, tree) = body((ROOT / origin).read_text(encoding="utf-8")), body(text)
        assert [ast.dump(item) for item in theirs] == [ast.dump(item) for item in ours], name
        for node in ast.walk(tree):
            assert not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("fairseq"), name


def test_transformers_finds_every_file(tmp_path):
    remote_code.write(tmp_path)
    found = {path.name for path in tmp_path.iterdir()}
    assert found == set(remote_code.files())
    reached = {f"{module.replace('.', '_')}.py" for module in remote_code.FIRST}
    for name in list(reached):
        reached |= {Path(path).name for path in get_relative_import_files(tmp_path / name)}
    assert reached == found


def test_the_classes_are_those_that_the_package_registers():
    for model_type, classes in remote_code.CLASSES.items():
        config_class = type(AutoConfig.for_model(model_type))
        for auto, reference in classes.items():
            expected = config_class
            if auto != "AutoConfig":
                expected = getattr(transformers, auto)._model_mapping[config_class]
            module, _, name = reference.rpartition(".")
            assert (expected.__module__, expected.__name__) == (f"fairseq_poolingformer.{module}", name)
    assert set(remote_code.CLASSES) == {
        getattr(fairseq_poolingformer.huggingface, name).model_type
        for name in fairseq_poolingformer.huggingface.__all__
        if name.endswith("Config")
    }
    assert PoolingformerMBartForConditionalGeneration.config_class.model_type in remote_code.CLASSES
