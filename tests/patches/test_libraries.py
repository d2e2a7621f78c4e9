import pytest
import torch

from fairseq_poolingformer.patches import libraries


@pytest.mark.parametrize("version", ["2.9.1", "1.13.1+cu117"])
def test_a_torch_whose_checkpoints_may_run_code_is_refused(version, monkeypatch):
    libraries.require_safe_torch()
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(ImportError, match=f"this is torch {version.partition('+')[0]}.*: install a newer one"):
        libraries.require_safe_torch()
