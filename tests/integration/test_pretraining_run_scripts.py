"""The run scripts of pretraining: the papers' numbers at full size, and a whole run at tiny size on a CPU."""

from __future__ import annotations

import random
import shlex
from pathlib import Path

import pytest

from tests.forked_python import PYTHON
from tests.integration.conftest import dry_run, options
from tests.lab import run_script


def commands(experiment: str, *arguments: object) -> list[list[str]]:
    """The commands of a dry run on eight GPUs, each as its words."""
    return dry_run("pretraining/run.sh", f"experiments={experiment}", "gpus=8", *arguments)


def expected(arch, lr, batch, window, layers, length="4096", pretrained=None, **others):
    """The flags that a paper decides."""
    flags = {"--arch": arch, "--lr": lr, "--max-positions": length, "--window-size": window, "--pooled-layers": layers}
    flags |= {"--finetune-from-model": pretrained and f"/out/{pretrained}/model.pt"}
    return flags | {f"--{name.replace('_', '-')}": value for name, value in others.items()}, batch


CONTINUED = {"max_update": "65000", "total_num_update": "65000", "power": "3", "warmup_updates": "500"}
POOLED = {"pooled_window_size": "512", "pool_kernel_size": "5", "pool_stride": "4", "pool_type": "ldconv"}
LARGE, BASE = "poolingformer_roberta_large", "poolingformer_roberta_base"
PAPERS = {
    "thesis_large": expected(LARGE, "1e-4", 128, "128", "15-20", **POOLED, max_epoch="4", power="1"),
    "fusion_large": expected(
        "poolingformer_deberta_large", "1e-4", 128, "128", "15-20", **POOLED, max_epoch="4", power="1"
    ),
    "longformer_base": expected(
        "longformer_roberta_base", "3e-5", 64, "256", "none", pretrained="roberta.base", **CONTINUED
    ),
    "longformer_large": expected(
        "longformer_roberta_large", "3e-5", 64, "256", "none", pretrained="roberta.large", **CONTINUED
    ),
    "frozen_base": expected(
        "longformer_roberta_base", "3e-5", 64, "256", "none", pretrained="roberta.base", **CONTINUED
    ),
    "start_base": expected("longformer_roberta_base", "0", 8, "256", "none", pretrained="roberta.base", max_update="1"),
    "roberta_base": expected(BASE, "0", 8, "512", "none", length="512", pretrained="roberta.base", max_update="1"),
    "poolingformer_base": expected(BASE, "3e-5", 64, "128", "6-8", pretrained="roberta.base", **POOLED, **CONTINUED),
}


@pytest.mark.parametrize("experiment", PAPERS)
def test_the_numbers_are_the_papers(experiment):
    preprocess, train = commands(experiment)
    flags, batch = PAPERS[experiment]
    found = options(train)
    assert {name: found.get(name) for name in flags} == flags
    assert int(found["--batch-size"]) * int(found["--update-freq"]) * 8 == batch
    assert ("--freeze-pretrained" in train) == experiment.startswith("frozen")
    assert found["--adam-betas"] == "(0.9, 0.98)"
    assert options(preprocess)["--input"] == "/out/raw/wiki/*-pages-articles*.xml*"


def test_the_fusion_is_trained_as_the_model_beside_it():
    """Thesis table 3.6: the same budget, whatever it is."""
    output = run_script("pretraining/thesis.sh", f"python={PYTHON}", "out=/out", "dry_run=1", "gpus=8", "steps=train")
    lines = output.replace("\\\n", " ").splitlines()
    thesis, fusion = (shlex.split(line) for line in lines if "-m " in line)
    assert options(fusion)["--arch"] == "poolingformer_deberta_large"
    ours = [word.replace("fusion_large", "thesis_large").replace("deberta", "roberta") for word in fusion]
    assert ours == thesis


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
    again = run_script("pretraining/thesis.sh", *arguments, "epochs=2", "steps=train", "cpus=2", "context=2")
    assert "Loaded checkpoint" in again
    assert '"epoch": 2' in again
