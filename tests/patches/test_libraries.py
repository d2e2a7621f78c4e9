import pytest
import torch

from fairseq_poolingformer.patches import libraries
from tests.lab import run_code

CHECK = """
import importlib, torch
from fairseq.modules import layer_norm
torch.cuda.is_available = lambda: True
importlib.reload(layer_norm)
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
    output = run_code(CHECK, tmp_path)
    assert output.split()[-1] == expected
    assert ("apex is installed without its CUDA kernels" in output) == (not kernels)


@pytest.mark.parametrize("version", ["2.9.1", "1.13.1+cu117"])
def test_a_torch_whose_checkpoints_may_run_code_is_refused(version, monkeypatch):
    libraries.require_safe_torch()
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(ImportError, match=f"this is torch {version.partition('+')[0]}.*: install a newer one"):
        libraries.require_safe_torch()
