"""The types that checkers and editors show to users."""

import ast
import os
import re
import subprocess
import sys
from dataclasses import is_dataclass
from pathlib import Path

import pytest

from fairseq_poolingformer import huggingface
from tests.lab import ROOT

STUB = Path(huggingface.__file__).with_suffix(".pyi")
SCRIPT = """\
import torch
from fairseq_poolingformer.attention import Window, band_attention
from fairseq_poolingformer.huggingface import PoolingformerBartConfig as Config
from fairseq_poolingformer.huggingface import PoolingformerRobertaForSequenceClassification as Classifier

x, either = torch.ones(1, 1, 5, 4), bool(torch.rand(1) < 0.5)
near = Window(2)
reveal_type(band_attention(x, x, x, window=near))  # is "torch._tensor.Tensor"
reveal_type(band_attention(x, x, x, window=near, return_lse=True))  # "tuple[torch._tensor.Tensor, torch.
reveal_type(band_attention(x, x, x, window=near, return_lse=either))  # is "torch._tensor.Tensor | tuple[
band_attention(x, x, x, window=near, scale=0.5, query_offset=1, backend="block")
band_attention(x, x, x, window=near, scales=0.5)  # "scales" for overloaded function
band_attention(x, x, x)  # No overload variant

model = Classifier.from_short("roberta-base", pooled_layers=[6, "7-8"], pool_stride=8, num_labels=3, dtype="bfloat16")
reveal_type(model)  # is "fairseq_poolingformer.huggingface.PoolingformerRobertaForSequenceClassification"
reveal_type(Classifier.from_pretrained("folder"))  # huggingface.PoolingformerRobertaForSequenceClassification"
reveal_type(model.config.pool_stride)  # is "int"
reveal_type(model.tokenizer)  # PreTrainedTokenizerBase | None"
Classifier.from_short(model, relative_attention="c2p", absolute_positions=False, hidden_dropout_prob=0.0)
Classifier.from_short(model, pooled_layer="6-8")  # keyword argument "pooled_layer"; did you mean "pooled_layers"?
Classifier.from_short(model, pool_stride="8")  # "pool_stride" has incompatible type "str"; expected "int"
Classifier.from_short(model, rope_type="ntk")  # keyword argument "rope_type"
Config(window_size=64, max_decoder_position_embeddings=512)
Config(windows_size=64)  # keyword argument "windows_size" for "PoolingformerBartConfig"; did you mean "window_size"
"""


@pytest.mark.full
def test_a_strict_mypy_knows_results_and_names_misspelt_settings(tmp_path):
    """A line without a comment has no message; the others' have its text."""
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    options = ["--strict", "--config-file=", f"--cache-dir={tmp_path}", "--no-error-summary"]
    command = [sys.executable, "-m", "mypy", *options, "script.py"]
    environment = os.environ | {"MYPYPATH": str(ROOT)}  # mypy does not follow an editable installation's import hook
    output = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout
    said: dict[int, str] = {}
    for number, text in re.findall(r"^script\.py:(\d+): (.*)$", output, re.MULTILINE):
        said[int(number)] = said.get(int(number), "") + text
    comments = {n: line.split("  # ")[1] for n, line in enumerate(SCRIPT.splitlines(), 1) if "  # " in line}
    assert said.keys() == comments.keys(), output
    assert [line for n, line in comments.items() if line not in said[n]] == [], output


def test_the_stub_has_the_classes_that_are_made():
    made = [node for node in ast.parse(STUB.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)]
    bases = {node.name: [ast.unparse(base).removeprefix("transformers.") for base in node.bases] for node in made}
    methods = {node.name: ast.unparse(node.body) for node in made}
    assert sorted(name for name in bases if name[0] != "_") == sorted(huggingface.__all__)
    for name in huggingface.__all__:
        cls = getattr(huggingface, name)
        if name.endswith("Config"):
            settings = [base.__name__ for base in cls.__bases__ if is_dataclass(base)]
            assert bases[name] == [*settings[:-1], "_Labels", settings[-1]]
        else:
            config, (family, theirs) = cls.config_class.__name__, bases[name]
            assert theirs == cls.__bases__[-1].__name__
            assert (bases[family], methods[family]) == ([f"_Long[{config}]"], f"from_short = _settings_of({config})")
