"""What all Poolingformers for transformers share: initialization, and folders that open without this package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from fairseq_poolingformer.huggingface.attention import initialize
from fairseq_poolingformer.models import remote_code


class TwoLevelModel:
    """Comes before transformers' own class among a model's bases."""

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        initialize(module)

    def save_pretrained(self, save_directory: str | Path, is_main_process: bool = True, **kwargs: Any) -> None:
        """Save as transformers does, with the code that ``trust_remote_code`` runs where this package is missing."""
        self.config.auto_map = remote_code.auto_map(self.config.model_type)
        super().save_pretrained(save_directory, is_main_process=is_main_process, **kwargs)
        if is_main_process:
            remote_code.write(Path(save_directory))
