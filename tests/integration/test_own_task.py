"""A task in a package of its own, that of docs/own_task.md: from raw data to its figure and to Hugging Face."""

import json
import random
import shutil

import pytest
import torch

from tests.lab import ROOT, run
from tests.text.tiny_gpt2 import TEXT, write_vocabulary

EXAMPLE = ROOT / "docs" / "own_task" / "key_sentence"
TRAINING = [
    *("--criterion", "document_task", "--arch", "longformer_roberta_tiny", "--max-positions", "64"),
    *("--window-size", "8", "--encoder-embed-dim", "32", "--encoder-ffn-embed-dim", "32", "--dropout", "0"),
    *("--attention-dropout", "0", "--optimizer", "adam", "--lr", "1e-2", "--batch-size", "4", "--seed", "1"),
    *("--no-progress-bar", "--num-workers", "0", "--cpu", "--disable-validation"),
]


def test_the_example_is_short():
    lines = [line for path in EXAMPLE.glob("*.py") for line in path.read_text().splitlines() if line.strip()]
    assert len(lines) <= 100


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The package somewhere else, and documents whose key sentence is all "it"."""
    folder = tmp_path_factory.mktemp("own")
    shutil.copytree(EXAMPLE, folder / "key_sentence")
    rng, words = random.Random(0), sorted(set(TEXT.split()) - {"it"})[:20]
    with open(folder / "train.jsonl", "w") as file:
        for number in range(4):
            sentences = [" " + " ".join(rng.choices(words, k=4)) for _ in range(3)]
            sentences[number % 3] = " it it it it"
            file.write(json.dumps({"id": f"d{number}", "sentences": sentences, "key": number % 3}) + "\n")
    return folder


def test_the_example_from_raw_data_to_its_figure(folder):
    user_dir = ("--user-dir", folder / "key_sentence")
    vocabulary, data, checkpoint = write_vocabulary(folder / "gpt2"), folder / "data", folder / "checkpoint_last.pt"
    cli = "fairseq_poolingformer.cli.main"
    flags = ["--train", folder / "train.jsonl", "--gpt2-bpe", vocabulary, "--output-folder", data, "--workers", 1]
    run(cli, "preprocess", *user_dir, "key_lines", *flags)
    training = [data, *user_dir, "--task", "key_sentence", *TRAINING, "--save-dir", folder]
    run("fairseq_cli.train", *training, "--max-update", 25)
    names = torch.load(checkpoint, weights_only=False)["model"]["mark_names"]
    assert bytes(names.tolist()).decode().split("\n")[-2:] == ["[s]", "[key]"]

    output = folder / "predictions.json"
    predict = ["predict", *user_dir, data, "--path", checkpoint, "--subset", "train", "--device", "cpu"]
    run(cli, *predict, "--num-workers", 0, "--output", output)
    assert json.loads(output.read_text())["key_sentence"] == {"d0": 0, "d1": 1, "d2": 2, "d3": 0}
    scored = run(cli, "score", *user_dir, "--task", "key_sentence", output, "--gold", folder / "train.jsonl")
    assert scored.split() == ["accuracy", "100.00"]

    refused = run(cli, "convert", "to-huggingface", checkpoint, folder / "hf", status=1)
    assert "--drop-heads" in refused, refused
    run(cli, "convert", "to-huggingface", checkpoint, folder / "hf", "--drop-heads")
    assert (folder / "hf" / "config.json").is_file()
    misread = run("fairseq_cli.train", *training, "--task", "masked_lm", "--max-update", 26, status=1)
    assert "is a data folder for --task key_sentence, not for --task masked_lm" in misread
