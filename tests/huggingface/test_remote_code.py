"""Folders that open with ``trust_remote_code`` where this package is not installed."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoConfig
from transformers.dynamic_module_utils import get_imports, get_relative_import_files

import fairseq_poolingformer.huggingface
from fairseq_poolingformer.huggingface import (
    PoolingformerBartForConditionalGeneration,
    PoolingformerMBartForConditionalGeneration,
    PoolingformerRobertaForMaskedLM,
    PoolingformerRobertaForWikihop,
    remote_code,
)
from tests.huggingface import test_families, test_seq2seq_families
from tests.huggingface.test_bart import LEVELS, outputs
from tests.models import tiny_huggingface
from tests.weights.test_roberta import batch

ROOT = Path(fairseq_poolingformer.__file__).parent

ELSEWHERE = """
import sys
sys.modules["fairseq_poolingformer"] = None  # as if it were not installed
sys.modules["torchaudio"] = None
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForQuestionAnswering, AutoModelForSeq2SeqLM
folder, inputs = sys.argv[1], torch.load(sys.argv[1] + "/inputs.pt")
with torch.no_grad():
    bart = AutoModelForSeq2SeqLM.from_pretrained(folder + "/bart", trust_remote_code=True).eval()
    roberta = AutoModelForMaskedLM.from_pretrained(folder + "/roberta", trust_remote_code=True).eval()
    written = [bart(**inputs["bart"]).logits, roberta(**inputs["roberta"]).logits]
    roberta.save_pretrained(folder + "/again")
    again = AutoModelForMaskedLM.from_pretrained(folder + "/again", trust_remote_code=True).eval()
    written.append(again(**inputs["roberta"]).logits)
    AutoModelForQuestionAnswering.from_pretrained(folder + "/again", trust_remote_code=True)
    wikihop = AutoModel.from_pretrained(folder + "/wikihop", trust_remote_code=True).eval()
    written.append(wikihop(**inputs["wikihop"]).logits)
    for model, name in ((bart, "bart"), (roberta, "roberta")):  # at random positions
        torch.manual_seed(1)
        written.append(model.train()(**inputs[name]).logits)
        model.eval()
bart(**inputs["bart"]).logits.square().mean().backward()
written.insert(4, {name: value.grad for name, value in bart.named_parameters()})
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


def test_folders_open_without_the_package_and_compute_the_same(tmp_path):
    sdpa = {"attn_implementation": "sdpa"}  # as in the other process
    settings = {**LEVELS, "max_position_embeddings": 60, "random_position_offsets": True}
    bart = PoolingformerBartForConditionalGeneration.from_short(tiny_huggingface.model("bart", **sdpa), **settings)
    settings |= {"relative_attention": "c2p,p2c", "max_relative_positions": 4}
    roberta = PoolingformerRobertaForMaskedLM.from_short(tiny_huggingface.model("roberta", **sdpa), **settings)
    bart.save_pretrained(tmp_path / "bart")
    roberta.save_pretrained(tmp_path / "roberta")
    wikihop = PoolingformerRobertaForWikihop(roberta.config).eval()
    wikihop.save_pretrained(tmp_path / "wikihop")
    (source, target), tokens = tiny_huggingface.batch(), batch()
    inputs = {"input_ids": source, "attention_mask": source.ne(1).long(), "decoder_input_ids": target}
    masked = {"input_ids": tokens, "attention_mask": tokens.ne(1).long()}
    candidate = torch.zeros_like(tokens)
    candidate[:, 1], candidate[:, 3] = 2, 1
    marked = {**masked, "candidate": candidate, "num_candidates": torch.full((len(tokens),), 2)}
    torch.save({"bart": inputs, "roberta": masked, "wikihop": marked}, tmp_path / "inputs.pt")
    environment = {**os.environ, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", ELSEWHERE, str(tmp_path)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = torch.load(tmp_path / "outputs.pt")
    with torch.no_grad():
        expected = roberta(**masked).logits
        assert torch.equal(found[3], wikihop(**marked).logits)
    assert torch.equal(found[0], outputs(bart, source, target)[1])
    assert torch.equal(found[1], expected)
    assert torch.equal(found[2], expected)
    bart.eval()(**inputs).logits.square().mean().backward()
    gradients = {name: value.grad for name, value in bart.named_parameters()}
    assert gradients.keys() == found[4].keys()
    assert all(torch.equal(gradients[name], found[4][name]) for name in gradients)
    for model, given, theirs in ((bart, inputs, found[5]), (roberta, masked, found[6])):
        torch.manual_seed(1)
        assert torch.equal(model.train()(**given).logits, theirs)
    names = {"configuration_poolingformer_bart.py", "modeling_poolingformer_bart.py"}
    assert {path.name for path in (tmp_path / "bart").glob("*.py")} == names


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


HEADS = [("poolingformer-roberta", f"PoolingformerRoberta{end}") for end in remote_code.TASK_HEADS]


@pytest.mark.parametrize(("model_type", "architecture"), [*((name, "") for name in remote_code.CLASSES), *HEADS])
def test_two_files_hold_everything_and_nothing_that_is_not_needed(model_type, architecture, tmp_path):
    remote_code.write(tmp_path, model_type, architecture)
    configuration, modeling = sorted(tmp_path.iterdir())
    assert [Path(path) for path in get_relative_import_files(modeling)] == [configuration]
    # no name is missing, defined twice or imported for nothing
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F", str(tmp_path)]
    done = subprocess.run(ruff, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for path in (configuration, modeling):
        needed = set(get_imports(path))
        assert needed <= {*sys.stdlib_module_names, "numpy", "torch", "transformers", "safetensors"}
        assert len(path.read_text(encoding="utf-8").splitlines()) < 4700


def test_on_a_gpu_it_computes_in_blocks(tmp_path, monkeypatch):
    """Other backends stay in the package."""
    remote_code.write(tmp_path, "poolingformer-roberta")
    monkeypatch.syspath_prepend(tmp_path.parent)
    alone = importlib.import_module(f"{tmp_path.name}.modeling_poolingformer_roberta")
    with FakeTensorMode():
        x = torch.empty(1, 2, 30, 32, dtype=torch.bfloat16, device="cuda")
    call = alone.Call.of(x, x, x, window=alone.Window(3))
    assert alone.fastest_backend(call, self_check=True)[0] == "block"


def test_definitions_are_the_packages_own(tmp_path):
    (text,) = (text for name, text in remote_code.files("poolingformer-bart").items() if name.startswith("modeling"))
    for module in ("attention/patterns.py", "attention/backends/block/lanes.py", "attention/call.py"):
        source = (ROOT / module).read_text(encoding="utf-8")
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef):
                assert f"\n{ast.get_source_segment(source, node)}\n" in text, node.name
                comment = f"# {module}: {ast.get_docstring(ast.parse(source)).splitlines()[0]}\n"
                assert text.index(comment) < text.index(f"class {node.name}")


def test_the_classes_are_those_that_the_package_registers():
    for model_type in remote_code.CLASSES:
        config_class = type(AutoConfig.for_model(model_type))
        files = {name.removesuffix(".py") for name in remote_code.files(model_type)}
        for auto, reference in remote_code.auto_map(model_type).items():
            file, name = reference.split(".")
            expected = (
                config_class if auto == "AutoConfig" else getattr(transformers, auto)._model_mapping[config_class]
            )
            assert expected.__name__ == name
            assert file in files
    assert set(remote_code.CLASSES) == {
        getattr(fairseq_poolingformer.huggingface, name).model_type
        for name in fairseq_poolingformer.huggingface.__all__
        if name.endswith("Config")
    }
    assert PoolingformerMBartForConditionalGeneration.config_class.model_type in remote_code.CLASSES


FAMILIES = """
import sys
sys.modules["fairseq_poolingformer"] = sys.modules["torchaudio"] = None
import torch, transformers
for folder in sys.argv[1:]:
    auto, inputs, expected = torch.load(folder + "/inputs.pt")
    model = getattr(transformers, auto).from_pretrained(folder, trust_remote_code=True).eval()
    assert type(model).__module__.startswith("transformers_modules"), type(model).__module__
    with torch.no_grad():
        assert torch.equal(model(**inputs)[0], expected), folder
"""


def test_every_family_opens_without_the_package(tmp_path):
    """Saved, loaded with the package and without; with a card that names the task."""
    folders = []
    families = [
        (test_families, kind, head) for kind in test_families.CONFIGS for head in ("Model", "ForMultipleChoice")
    ]
    families += [(test_seq2seq_families, kind, row[3][-1]) for kind, row in test_seq2seq_families.CONFIGS.items()]
    for tests, kind, head in families:
        model = tests.ours(kind, head).from_short(tests.short(kind, head), **LEVELS).float()
        given = tests.inputs(head) if tests is test_seq2seq_families else tests.inputs(kind, head)
        folder = tmp_path / f"{kind}-{head}"
        model.save_pretrained(folder)
        auto = {name.split(".")[1]: auto for auto, name in model.config.auto_map.items()}[type(model).__name__]
        again = getattr(transformers, auto).from_pretrained(folder).eval()
        assert type(again) is type(model)
        given = {name: x for name, x in given.items() if "labels" not in name and "positions" not in name}
        if auto == "AutoModelForSeq2SeqLM":
            given["decoder_input_ids"] = given["input_ids"][:, :5]
        with torch.no_grad():
            expected = again(**given)[0]
            torch.testing.assert_close(model.eval()(**given)[0], expected)
        torch.save((auto, given, expected), folder / "inputs.pt")
        assert f"# {type(model).__name__}\n" in (folder / "README.md").read_text()
        folders.append(str(folder))
    environment = {**os.environ, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", FAMILIES, *folders], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
