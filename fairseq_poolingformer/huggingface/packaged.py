"""What every model here has beside transformers' own: ``from_short``, and folders with tokenizer, digests and card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairseq_poolingformer.huggingface import card
from fairseq_poolingformer.huggingface.short_models import FromShort
from fairseq_poolingformer.weights import tensor_digests


class Packaged(FromShort):
    """Comes first among a model's bases."""

    def save_pretrained(self, save_directory: str | Path, is_main_process: bool = True, **kwargs: Any) -> None:
        """Save as transformers does, with the tokenizer that :meth:`from_short` keeps, and a card."""
        super().save_pretrained(save_directory, is_main_process=is_main_process, **kwargs)
        if is_main_process:
            self._complete(Path(save_directory))

    def _upload_modified_files(self, working_dir: str | Path, *args: Any, **kwargs: Any) -> Any:
        """Upload a folder, which transformers does before ``save_pretrained`` returns."""
        self._complete(Path(working_dir))
        return super()._upload_modified_files(working_dir, *args, **kwargs)

    def _complete(self, folder: Path) -> None:
        if self.tokenizer is not None and not (folder / "tokenizer_config.json").exists():  # a user's own one stays
            self.tokenizer.save_pretrained(folder)
        tensor_digests.add_to_folder(folder)
        card.write(folder, self)
