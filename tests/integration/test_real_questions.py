"""Real questions beside the checkout: a small model from scratch learns them, from the raw files to F1 100."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.forked_python import PYTHON
from tests.lab import run_script

SHARED = Path(__file__).parents[3] / "shared" / "data"
# As many negatives as an epoch needs to have some: of 80 segments of the TyDi examples, three have an answer.
TRAINING = ["pretrained=-", "arch=poolingformer_roberta_tiny", "w1=128", "pooled_layers=1", "w2=512", "negatives=0.1"]
TRAINING += ["length=2048", "doc_stride=1024", "batch=2", "device_batch=2", "lr=1e-3", "recompute=0", "num_workers=0"]
TRAINING += ["gpus=0", "predict_tokens=8192", "published=-", f"python={PYTHON}"]
FLAGS = ["--dropout", "0", "--attention-dropout", "0", "--encoder-normalize-before"]


def learn(experiment: str, corpus: str, files: list[Path], epochs: int, tmp_path: Path, *arguments: str) -> dict:
    """Preprocess, train, predict and score the same questions; what ``poolingformer-score-qa`` wrote."""
    names = " ".join(map(str, files))
    options = [f"experiments={experiment}", "name=overfit", f"corpus={corpus}", f"out={tmp_path}", f"epochs={epochs}"]
    options += [f"train_files={names}", f"dev_files={names}", *TRAINING, *arguments]
    run_script(
        "question_answering/run.sh", *options, "--", *FLAGS, "--validate-interval", epochs, "--save-interval", epochs
    )
    return json.loads((tmp_path / "overfit" / "scores.json").read_text())


def f1(scores: dict) -> tuple[float, float]:
    """Best F1 of long and short answers over all examples."""
    return tuple(scores["all"][name]["best"]["f1"] for name in ("long", "short"))


@pytest.mark.slow
def test_tydiqa(tmp_path):
    """Eleven languages; three of the questions have an answer by the official rule."""
    dev = SHARED / "tydiqa" / "tiny_dev.jsonl.gz"
    if not dev.is_file():
        pytest.skip("no real TyDi QA examples beside the checkout")
    scores = learn("tydi_large", "tydiqa", [dev], 90, tmp_path, "vocabulary=2000")
    assert scores["all"]["long"]["gold"] == 3
    assert f1(scores) == (1, 1)


@pytest.mark.slow
def test_natural_questions(tmp_path):
    """One annotation each, which makes an answer in training data; the official two are asked of none here."""
    files = [SHARED / "nq" / f"simplified_{split}_sample.jsonl" for split in ("train", "dev")]
    bpe = SHARED / "gpt2_bpe"
    if not all(path.exists() for path in (*files, bpe)):
        pytest.skip("no real Natural Questions examples beside the checkout")
    scores = learn("nq_large", "nq", files, 60, tmp_path, f"bpe={bpe}", "min_annotations=1")
    assert f1(scores) == (1, 1)
