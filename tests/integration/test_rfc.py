"""The experiments of run_scripts/rfc: what they would run, the controls, and that they run on made documents."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from run_scripts.rfc import section_controls, twice
from tests.integration.test_evidence import trainings
from tests.integration.test_run_scripts import call
from tests.preprocess.made_rfc import make_rfc, write_rfcs

RUN = "rfc/run.sh"
TOPICS = ("water", "steam", "tea", "milk", "sugar", "cups", "spoons", "pots", "leaves", "lemons")


def made_documents(count: int = 45) -> dict[int, str]:
    """Documents whose sections name each other."""
    documents = {}
    for number in range(1, count + 1):
        topics = [TOPICS[(number + 3 * place) % len(TOPICS)] for place in range(6)]
        sections = {}
        for place, topic in enumerate(topics):
            other = (place * 2 + number) % 6
            named = (
                f"All that a reader wants to know of {topics[other]} is told at length in Section {other + 1} alone."
            )
            sections[f"{place + 1}.  Of {topic}"] = [f"Here we tell of {topic} what there is to tell. " * 11, named]
        documents[number] = make_rfc(number, sections)
    return documents


def test_systems_differ_in_the_upper_layers_attention_and_in_length_only():
    found = trainings("seeds=1,2", script=RUN)
    copy, start = found.pop("copy"), found.pop("start")
    systems = ("segments", "level_one", "equal_keys", "poolingformer", "full")
    assert list(found) == [f"{system}_{seed}" for seed in (1, 2) for system in systems]
    assert start["--finetune-from-model"] == "/out/copy/checkpoints/checkpoint_last.pt"
    assert copy["--finetune-from-model"] == "/out/first.pt"
    own = {"--save-dir", "--log-file", "--log", "--seed"}
    own |= {"--window-size", "--pooled-layers", "--pooled-window-size", "--pooled-init", "--max-positions"}
    for name, flags in found.items():
        assert flags["--finetune-from-model"] == "/out/start/checkpoints/checkpoint_last.pt"
        assert {k: v for k, v in flags.items() if k not in own} == {
            k: v for k, v in found["full_1"].items() if k not in own
        }, name
    two = found["poolingformer_1"]
    keys = int(two["--window-size"].split(",")[3]) + int(two["--pooled-window-size"]) // 4
    assert found["equal_keys_1"]["--window-size"] == f"1,4,{keys},{keys}"
    assert found["segments_1"]["--max-positions"] == "512"
    assert "systems= has no, which is not in" in call(RUN, "systems=no", "dry_run=1", status=1)


def test_controls_by_hand():
    texts = [["a", "b"], ["a", "c", "c"], ["d"]]
    scores = section_controls.bm25(["a", "c", "x"], texts)
    assert scores[1] > scores[0] > scores[2] == 0
    assert section_controls.bm25(["d"], texts)[2] == pytest.approx(
        np.log(1 + 2.5 / 1.5) * 2.2 / (1 + 1.2 * (0.25 + 0.375))
    )
    features = [np.array([[1.0, 0, 0], [0, 0, 0], [-np.inf] * 3]), np.array([[0.0, 0, 1], [2, 0, 0]])]
    weights = section_controls.fit(features * 3, [0, 1, 1, 0, 0, 1])  # two of three are right in both: w0 = 2 w0 - w2
    np.testing.assert_allclose(weights, [np.log(2), 0, np.log(2)], atol=1e-3)


def test_passages_come_twice(tmp_path):
    (tmp_path / "documents.txt").write_text(" ".join(map(str, range(90))) + "\n1. short\n\n" + "a b " * 25)
    found = [passage.split() for passage in twice.passages(tmp_path / "documents.txt")]
    assert len(found) > 1
    assert all(any(words[:size] == words[-size:] for size in range(10, 25)) for words in found)


@pytest.mark.slow
def test_the_whole_way_on_made_documents(tmp_path):
    folder = write_rfcs(tmp_path / "RFC", made_documents())
    small = (
        "vocabulary=330",
        "start_updates=1,1",
        "updates=1",
        "examples=2",
        "seeds=1",
        "systems=poolingformer",
    )
    arguments = (f"input={folder}", f"out={tmp_path}/out", f"python={sys.executable}", *small)
    output = call(RUN, *arguments)
    assert output.count("\naccuracy ") == 5  # four controls and the model
    found = json.loads((tmp_path / "out" / "poolingformer_1" / "predictions.json").read_text())["sections"]
    assert {len(ranked) for ranked in found.values()} == {5}
    assert "begin training" not in call(RUN, *arguments)
