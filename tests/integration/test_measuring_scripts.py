"""Numbers of the scripts that measure, by hand."""

import json

import numpy as np

from run_scripts import equal_budget
from run_scripts.evidence import crossover, retrieval
from run_scripts.evidence.systems import System

PEP = "Title: a\n\nFirst\n=====\n\n{0}\n\nAbstract\n========\n\n{1}\n\nLast\n----\n\nthe end\n"


def test_a_text_is_its_abstract_and_the_other_sections():
    query, first = "query " * retrieval.QUERY_WORDS, "first " * retrieval.QUERY_WORDS
    assert retrieval.divide(PEP.format(first, query)) == (
        query.strip(),
        f"First\n=====\n\n{first}\n\nLast\n----\n\nthe end\n",
    )
    named, rest = retrieval.divide(f"before\n# One\n{first}\n# Two\n{query}\n")
    assert (named, rest) == (first.strip(), f"# Two\n{query}\n"), "without an abstract the first section"
    assert retrieval.divide(PEP.format(first, "few words")) is retrieval.divide(f"# One\n{first}\n") is None


def test_reciprocal_ranks_by_hand():
    scores = np.array([[3.0, 1.0, 2.0], [5.0, 4.0, 4.0], [0.0, 1.0, 0.5]])  # of the second query one is level
    ranks = retrieval.reciprocal_ranks(scores)
    assert ranks.tolist() == [1, 1 / 3, 1 / 2]
    assert retrieval.interval(np.array([0.5] * 9)).split() == ["50.0", "(50.0", "to", "50.0)"]
    mean, low, _, high = retrieval.interval(np.array([0.0, 1.0] * 8)).replace("(", "").replace(")", "").split()
    assert (mean, low, high) == ("50.0", "25.0", "75.0")  # 4 of 16 at each side, two standard deviations


def test_systems_are_beside_the_window_of_as_many_keys(tmp_path):
    bits = {
        "narrow_1": (5.0, 6.0),
        "wide_1": (4.0, 3.0),
        "two_1": (4.5, 5.0),
        "two_2": (4.0, 5.5),
        "narrow_2": (5.5, 6),
    }
    for name, values in bits.items():
        rows = [{"distance": at, "bits_per_token": x} for at, x in zip(("all", "> 9"), values, strict=True)]
        (tmp_path / name).mkdir()
        (tmp_path / name / "bits_128.json").write_text(json.dumps({"classes": rows}))
    systems = {
        name: System(name, "absolute", w1, "-", "none", "-", "-") for name, w1 in (("narrow", "16"), ("wide", "32"))
    }
    systems["two"] = System("two", "absolute", "8", "32", "2-3", "mean", "--pool-stride=4")  # 16 + 64 / 4
    text = crossover.differences(crossover.Results(tmp_path, systems, 128)).splitlines()
    assert text[1].split(maxsplit=4) == ["32", "two", "-", "narrow", "-1.00 [-1.50, -0.50]  -0.75 [-1.00, -0.50]"]
    assert len(text) == 2


def test_a_log_has_its_last_values(tmp_path):
    log = tmp_path / "train.log"
    log.write_text(
        'fairseq.tasks | num. shared model params: 1,234 (num. trained: 1,234)\n{"loss": "5", "lr": "1"}\n'
        '{"epoch": 1, "loss": "4", "gnorm": "2"}\n{"train_loss": "4.5", "train_num_updates": "8"}\n{"loss": "9"\n'
    )
    values = {"last_loss": 4, "last_lr": 1, "last_epoch": 1, "last_gnorm": 2, "parameters": 1234}
    assert equal_budget.last_values(log) == values | {"train_loss": 4.5, "train_num_updates": 8}
