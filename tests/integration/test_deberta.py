"""The DeBERTa fusion by the real command lines: pretrained, resumed with longer blocks, fine-tuned on questions."""

import numpy as np
import pytest
import torch

from fairseq_poolingformer.text.tokenizers import GPT2Tokenizer
from tests.lab import ROOT, run
from tests.tasks.masked_lm.mlm_folder import random_texts
from tests.tasks.question_answering.folders import Example, write_folder
from tests.text.tiny_gpt2 import write_vocabulary

USER = ("--user-dir", ROOT / "fairseq_poolingformer", "--arch", "poolingformer_deberta_tiny")
SIZES = ("--encoder-embed-dim", 16, "--encoder-ffn-embed-dim", 16, "--encoder-attention-heads", 2)
LEVELS = ("--window-size", 6, "--pooled-window-size", 24, "--max-relative-positions", 8)
TRAINING = [
    *("--optimizer", "fused_adamw", "--lr", "0.01", "--num-workers", 0, "--cpu", "--seed", 1, "--log-format", "json"),
    *("--log-interval", 1, "--no-epoch-checkpoints", "--disable-validation", "--checkpoint-activations"),
]
P = "encoder.sentence_encoder.relative_positions.weight"
P_G = "encoder.sentence_encoder.global_relative_positions.weight"
BUCKET = "encoder.sentence_encoder.global_relative_positions.tokens_per_row"


def train(task, data, folder, *flags):
    command = ("fairseq_cli.train", data, "--task", task, "--criterion", task, *USER, *SIZES, *LEVELS, *TRAINING)
    return run(*command, "--save-dir", folder, *flags)


def load(folder):
    return torch.load(folder / "checkpoint_last.pt", weights_only=False)["model"]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    return write_vocabulary(tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="module")
def pretrained(vocabulary, tmp_path_factory):
    raw, output = tmp_path_factory.mktemp("raw"), tmp_path_factory.mktemp("data") / "data-bin"
    (raw / "train.txt").write_text("\n\n".join(random_texts(30, 40, seed=1)) + "\n", encoding="utf-8")
    files = ("--input", raw / "train.txt", "--documents", "block", "--min-chars", 1, "--valid-share", 0.1)
    run("preprocess", "plain_text", *files, "--gpt2-bpe", vocabulary, "--output-folder", output)
    folder = tmp_path_factory.mktemp("pretrained")
    flags = ("--max-positions", 40, "--max-tokens", 200, "--max-update", 4, "--store-ema")
    log = train("long_masked_lm", output, folder, *flags)
    assert '"bits_per_character"' in log
    return output, folder


@pytest.mark.full
def test_the_average_of_the_parameters_is_stored(pretrained):
    average = torch.load(pretrained[1] / "checkpoint_last.pt", weights_only=False)["extra_state"]["ema"]
    assert average[BUCKET] == 1
    assert not torch.equal(average[P_G], load(pretrained[1])[P_G])


@pytest.mark.full
def test_pretraining_with_longer_blocks_goes_on_from_shorter_ones(pretrained, tmp_path):
    data, folder = pretrained
    state = load(folder)
    assert (state[P].shape, state[P_G].shape) == ((16, 16), (128, 16))
    flags = ("--finetune-from-model", folder / "checkpoint_last.pt", "--global-relative-positions", 20)
    log = train("long_masked_lm", data, tmp_path, "--max-positions", 80, "--max-tokens", 200, *flags, "--max-update", 2)
    assert "128 rows, each of 1 distances -> 40, each of 4" in log
    after = load(tmp_path)
    assert after[P_G].shape == (40, 16)
    changed = (after[P] != state[P]).any(1).nonzero().flatten().tolist()
    assert changed == list(range(8 - 6, 8 + 6 + 1))  # the distances of the window


@pytest.mark.full
def test_question_answering_with_global_questions(vocabulary, pretrained, tmp_path):
    rng, spans = np.random.default_rng(0), [(0, 8), (8, 15), (17, 24)]
    examples = [
        Example(rng.integers(4, 150, 4).tolist(), rng.integers(4, 150, 32).tolist(), spans, [(1, 2, 19, 21)])
        for _ in range(4)
    ]
    data = tmp_path / "qa"
    write_folder(data, {"train": examples, "valid": examples}, kind="natural_questions")
    tokenizer = GPT2Tokenizer(*(vocabulary / name for name in GPT2Tokenizer.files))
    tokenizer.save(data)
    tokenizer.write_dictionary(data / "dict.txt")
    lengths = ("--max-positions", 40, "--doc-stride", 12, "--max-question-length", 8)
    flags = (*lengths, "--finetune-from-model", pretrained[1] / "checkpoint_last.pt", "--batch-size", 4)
    log = train("question_answering", data, tmp_path / "run", *flags, "--max-update", 3)
    assert "newly initialized: question_answering_head" in log
    before, after = load(pretrained[1]), load(tmp_path / "run")
    assert not torch.equal(before[P_G], after[P_G])
    arguments = ("--path", tmp_path / "run" / "checkpoint_last.pt", "--output", tmp_path / "predictions.json")
    run("fairseq_poolingformer.cli.main", "predict", data, "--device", "cpu", "--num-workers", 0, *arguments)
    assert (tmp_path / "predictions.json").stat().st_size > 100
