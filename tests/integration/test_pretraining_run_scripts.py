"""The run scripts of pretraining: the papers' numbers at full size, and a whole run at tiny size on a CPU."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tests.forked_python import PYTHON
from tests.integration.conftest import dry_run, options
from tests.lab import run_script


def commands(experiment: str, *arguments: object) -> list[list[str]]:
    """The commands of a dry run on eight GPUs, each as its words."""
    return dry_run("pretraining/run.sh", f"experiments={experiment}", "gpus=8", *arguments)


def test_epochs_become_updates():
    """900,000 blocks in batches of 128."""
    (train,) = commands("thesis_large", "steps=train")
    assert options(train)["--total-num-update"] == str(4 * -(-900_000 // 128))


def write_dump(path: Path, pages: int) -> None:
    """A MediaWiki dump of some pages of about a hundred words."""
    generator = random.Random(0)
    words = ["the", "theory", "of", "long", "documents", "''attends''", "to", "[[another]]", "naïve", "café", "\n"]
    head = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">'
    head += '<siteinfo><namespaces><namespace key="0" case="first-letter" /></namespaces></siteinfo>'
    page = "<page><title>Page {0}</title><ns>0</ns><id>{0}</id><revision><id>{0}</id><text>{1}</text></revision></page>"
    texts = (" ".join(generator.choices(words, k=100)) for _ in range(pages))
    path.write_text(head + "".join(page.format(i, text) for i, text in enumerate(texts, 1)) + "</mediawiki>")


@pytest.mark.full
def test_a_dump_becomes_a_model_that_two_processes_resume(tmp_path):
    dump = tmp_path / "dump.xml"
    write_dump(dump, 20)
    arguments = [f"out={tmp_path}", f"raw={dump}", "vocabulary=295", "valid_share=0.3", f"python={PYTHON}"]
    arguments += ["arch=poolingformer_roberta_tiny", "length=64", "w1=8", "w2=24", "pooled_layers=1", "warmup=1"]
    arguments += ["batch=4", "device_batch=4", "epochs=1", "gpus=0", "num_workers=0", "preprocess_workers=1"]
    arguments += ["experiments=thesis_large"]
    first = run_script("pretraining/thesis.sh", *arguments)
    assert '"valid_loss"' in first
    assert (tmp_path / "thesis_large" / "checkpoints" / "checkpoint_best.pt").is_file()
    again = run_script("pretraining/thesis.sh", *arguments, "epochs=2", "steps=train", "cpus=2")
    assert "Loaded checkpoint" in again
    assert '"epoch": 2' in again
    name, split, loss = again.splitlines()[-1].split()
    assert (name, split) == ("thesis_large,", "valid")
    assert float(loss) == float(re.findall(r'"valid_loss": "([\d.]+)"', again)[-1])
