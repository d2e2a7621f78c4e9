"""What a model has where this package is installed: ``from_short``, and folders with a card and code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairseq_poolingformer.huggingface import card, remote_code
from fairseq_poolingformer.huggingface.short_models import FromShort
from fairseq_poolingformer.weights import tensor_digests


class Packaged(FromShort):
    """Comes first among a model's bases; the code that travels with a folder leaves it out."""

    def save_pretrained(self, save_directory: str | Path, is_main_process: bool = True, **kwargs: Any) -> None:
        """Save as transformers does, with a card and the code that ``trust_remote_code`` runs without this package."""
        self.config.auto_map = remote_code.auto_map(self.config.model_type, type(self).__name__)
        super().save_pretrained(save_directory, is_main_process=is_main_process, **kwargs)
        if is_main_process:
            self._complete(Path(save_directory))

    def _upload_modified_files(self, working_dir: str | Path, *args: Any, **kwargs: Any) -> Any:
        """Upload a folder, which transformers does before ``save_pretrained`` returns."""
        self._complete(Path(working_dir))
        return super()._upload_modified_files(working_dir, *args, **kwargs)

    def _complete(self, folder: Path) -> None:
        """Add the weights' digests, the code and a card to a folder in which the model was saved."""
        tensor_digests.add_to_folder(folder)
        remote_code.write(folder, self.config.model_type, type(self).__name__)
        card.write(folder, self)
