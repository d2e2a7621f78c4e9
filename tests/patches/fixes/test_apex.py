"""apex with and without its CUDA kernels, on a machine that seems to have a GPU."""

import subprocess
import sys

import pytest

CHECK = """
import torch
torch.cuda.is_available = lambda: True
import fairseq.modules.layer_norm as layer_norm
import fairseq_poolingformer
fairseq_poolingformer.register()
print(type(layer_norm.LayerNorm(8)).__name__)
"""
FUSED = """
import importlib, torch
class FusedLayerNorm(torch.nn.LayerNorm):
    def __init__(self, *arguments):
        importlib.import_module("fused_layer_norm_cuda")
        super().__init__(*arguments)
"""


@pytest.mark.parametrize(("kernels", "expected"), [(False, "LayerNorm"), (True, "FusedLayerNorm")])
def test_apex_is_used_when_its_kernels_are_there(kernels, expected, tmp_path):
    (tmp_path / "apex").mkdir()
    (tmp_path / "apex" / "__init__.py").touch()
    (tmp_path / "apex" / "normalization.py").write_text(FUSED)
    if kernels:
        (tmp_path / "fused_layer_norm_cuda.py").touch()
    check = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{CHECK}"
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert result.stdout.split()[-1] == expected
    assert ("apex is installed without its CUDA kernels" in result.stderr) == (not kernels)
