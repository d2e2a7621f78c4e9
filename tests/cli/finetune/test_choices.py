"""What is chosen where the user says nothing, and what the user says instead."""

import numpy as np
import pytest

from fairseq_poolingformer.cli.finetune.choices import Choices, Lengths, choose, training_flags
from fairseq_poolingformer.cli.finetune.command import make_parser
from fairseq_poolingformer.cli.finetune.start import Start
from fairseq_poolingformer.text.labels import AMOUNT, ONE, SEVERAL

LENGTHS = Lengths(np.array([3000] * 500), 300)
BASE = Start({"arch": "bart_base", "max_source_positions": 1024, "encoder_embed_dim": 768}, True, weights="model.pt")


def chosen(*flags, start=BASE, inputs=(3000,) * 500, task="long_summarization", output=300):
    args = vars(make_parser().parse_args(["MODEL", "DATA", "--output-folder", "run", "--device", "cpu", *flags]))
    given = {name: args[name] for name in args if name in Choices.__dataclass_fields__}
    return choose(given, start, task, Lengths(np.array(inputs), output))


@pytest.mark.parametrize(
    ("longest", "positions", "length"),
    [(300, 1024, 1024), (1500, 1024, 2048), (9000, 1024, 4096), (9000, 16384, 16384), (100, 0, 128)],
)
def test_the_length_is_what_documents_need_and_the_model_reads(longest, positions, length):
    start = Start({"arch": "x", "max_source_positions": positions}, True)
    assert chosen(start=start, inputs=(50, longest)).length == length


@pytest.mark.parametrize(("count", "batch", "lr"), [(100, 4, 4e-5), (800, 16, 7e-5), (203037, 128, 2e-4)])
def test_few_documents_have_small_batches_and_a_smaller_rate(count, batch, lr):
    found = chosen(inputs=(3000,) * count)
    assert (found.batch, found.lr) == (batch, lr)
    assert found.warmup == min(1000, -(-found.total(count) // 10))


def test_every_choice_is_a_flag():
    flags = {"length": "512", "target-length": "9", "batch": "3", "device-batch": "1", "epochs": "2", "updates": "7"}
    flags |= {"warmup": "0", "lr": "0.5", "precision": "bf16", "seed": "5"}
    found = chosen(
        *(word for name, value in flags.items() for word in (f"--{name}", value)), "--checkpoint-activations"
    )
    assert found == Choices(512, 9, 3, 1, 1, 2, 7, 0, 0.5, "bf16", "cpu", True, 5, max_segments=1)


def test_documents_are_trained_on_in_all_their_segments_unless_the_user_says_fewer(tmp_path):
    start, task = Start({"arch": "roberta_base", "max_positions": 512}, False), "document_classification"
    for flags, text in (
        ((), "are read in segments, all ("),
        (("--max-segments", "3"), "are read in segments, the first 3 ("),
    ):
        found = chosen("--length", "512", "--device-batch", "1", *flags, start=start, task=task)
        words = training_flags(found, start, task, tmp_path, tmp_path, Lengths(np.array([3000]), 0), ())
        assert [words[n + 1] for n, word in enumerate(words) if word == "--max-segments"] == list(flags[1:])
        assert text in found.as_text(task, "text", {"train": 1}, Lengths(np.array([3000]), 0))


@pytest.mark.parametrize(
    ("task", "problem", "best"),
    [
        ("document_classification", ONE, ["accuracy"]),
        ("document_classification", SEVERAL, ["f1"]),
        ("document_classification", AMOUNT, []),
        ("token_labels", ONE, ["f1"]),
        ("wikihop", ONE, ["accuracy"]),
        ("hotpotqa", ONE, []),
    ],
)
def test_the_best_checkpoint_is_that_of_the_figure_that_counts(tmp_path, task, problem, best):
    start, lengths = Start({"arch": "roberta_base", "max_positions": 512}, False), Lengths(np.array([9]), 0, problem)
    words = training_flags(
        chosen("--device-batch", "1", start=start, task=task), start, task, tmp_path, tmp_path, lengths, ()
    )
    assert [words[n + 1] for n, word in enumerate(words) if word == "--best-checkpoint-metric"] == best


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ((), "625 updates, 5 epochs;"),
        (("--updates", "50"), "50 updates, 0.4 epochs;"),
        (("--updates", "900"), "625 updates, 5 epochs (--epochs), fewer than --updates 900;"),
    ],
)
def test_the_plan_says_when_the_training_ends(flags, text):
    found = chosen("--batch", "4", "--epochs", "5", *flags)
    assert text in found.as_text("long_summarization", "text", {"train": 500}, LENGTHS)


def test_summaries_are_as_long_as_those_of_the_data_or_as_the_model_writes():
    assert chosen(output=300).target_length == 300
    assert chosen(output=3000).target_length == 1024


def test_a_criterion_or_optimizer_of_the_users_comes_without_the_options_of_ours(tmp_path):
    start = Start({"arch": "poolingformer_bart_tiny"}, True)
    found = chosen("--device-batch", "1", "--lr", "1.2345678e-5", start=start)
    flags = training_flags(found, start, "long_summarization", tmp_path, tmp_path, LENGTHS, ["--optimizer", "sgd"])
    assert flags[flags.index("--lr") + 1] == "1.2345678e-05"
    assert "--adam-betas" not in flags
    assert "--label-smoothing" in flags
    assert flags[-2:] == ["--optimizer", "sgd"]
    assert flags.count("--optimizer") == 1
