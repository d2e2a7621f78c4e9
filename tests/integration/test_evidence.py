"""The experiments of run_scripts/evidence: their corpus, what they would run, their tables, and that they run."""

from __future__ import annotations

import json
import shlex
import sys

import pytest
import torch
from torch import nn

from fairseq_poolingformer.settings import DEFAULTS
from run_scripts.evidence import report, sources
from tests.integration.test_run_scripts import ROOT, call, options

RUN, SUMMARIES = "evidence/run.sh", "evidence/summaries.sh"


def write_modules(folder, count: int = 12) -> None:
    """Modules in packages of their own, whose names come back."""
    for number in range(count):
        body = "".join(f"    alpha_{number}_{k % 9} = beta(alpha_{number}_{(k + 3) % 9}, {k})\n" for k in range(120))
        path = folder / f"package{number}" / "code.py"
        path.parent.mkdir(parents=True)
        path.write_text(f"def work_{number}():\n{body}", encoding="utf-8")


def commands(script: str, *arguments: str) -> list[list[str]]:
    """The commands of a dry run, each as its words."""
    output = call(script, f"python={sys.executable}", "out=/out", "dry_run=1", *arguments).replace("\\\n", " ")
    return [shlex.split(line) for line in output.splitlines() if line.startswith(sys.executable)]


def trainings(*arguments: str, script: str = RUN) -> dict[str, dict[str, str]]:
    """The flags of each training by its folder."""
    found = [words for words in commands(script, *arguments) if "fairseq_cli.train" in words]
    return {options(words)["--save-dir"].split("/")[2]: options(words) for words in found}


def test_running_text_is_words_and_punctuation():
    assert sources.running_text("def f(a_b):\n    return [a_b, 1.5]\n") == "def f ( a_b ): return [ a_b , 1 . 5 ]"


def test_a_package_is_on_one_side(tmp_path):
    write_modules(tmp_path / "library")
    (tmp_path / "library" / "package3" / "short.py").write_text("x = 1\n")
    counts = sources.write_corpus(tmp_path / "library", tmp_path / "raw")
    texts = {split: (tmp_path / "raw" / f"{split}.txt").read_text().split("\n\n") for split in counts}
    assert {split: len(found) for split, found in texts.items()} == counts
    assert counts["train"] + counts["valid"] == 12
    assert counts["valid"] == sum(sources.is_valid(f"package{number}.code") for number in range(12)) > 0
    assert sources.is_valid("package3.code") == sources.is_valid("package3.other.deep")
    for passage in texts["twice"]:
        words = passage.split()
        length = next(k for k in range(24, 9, -1) if words[:k] == words[-k:])
        assert 10 <= length <= 24
        assert len(words) - 2 * length <= 14


def test_systems_differ_in_the_upper_layers_attention_only():
    found = trainings("seeds=1,2", "systems=full,level_one,level_one_96,ldconv,mix,share,random,fusion")
    starts = {name: found.pop(name) for name in ("copy_absolute", "start_absolute", "copy_relative", "start_relative")}
    systems = ("full", "level_one", "level_one_96", "ldconv", "mix", "share", "random", "fusion")
    assert list(found) == [f"{system}_{seed}" for seed in (1, 2) for system in systems]
    attention = {"--window-size", "--pooled-layers", "--pooled-window-size", "--pool-type", "--pool-mix",
                 "--pool-share-weights", "--pooled-init=level-one"}  # fmt: skip
    own = {"--save-dir", "--log-file", "--log", "--seed"}
    for name, flags in found.items():
        start = "relative" if name.startswith("fusion") else "absolute"
        assert flags["--finetune-from-model"] == f"/out/start_{start}/checkpoints/checkpoint_last.pt"
        assert flags["--seed"] == name[-1]
        same = found["fusion_1" if start == "relative" else "level_one_1"]
        assert {k: v for k, v in flags.items() if k not in attention | own} == {
            k: v for k, v in same.items() if k not in attention | own
        }
    for start, kind in (("start_absolute", "copy_absolute"), ("start_relative", "copy_relative")):
        assert starts[start]["--finetune-from-model"] == f"/out/{kind}/checkpoints/checkpoint_last.pt"
        assert starts[start]["--max-positions"] == "256"
    windows = {name: flags["--window-size"] for name, flags in found.items()}
    assert windows["full_1"] == "1,4,all,all"
    assert windows["level_one_1"] == windows["ldconv_1"] == "1,4,32,32"
    # as many keys on each side as two levels have
    (w1,) = {windows["level_one_96_1"].split(",")[2], windows["level_one_96_1"].split(",")[3]}
    assert int(w1) == 32 + int(found["ldconv_1"]["--pooled-window-size"]) // 4
    assert found["mix_1"]["--pooled-layers"] == "2-3"
    level_one_start = {name for name, flags in found.items() if "--pooled-init=level-one" in flags}
    assert level_one_start == {"ldconv_1", "ldconv_2", "mix_1", "mix_2", "fusion_1", "fusion_2"}
    assert found["level_one_1"]["--pooled-layers"] == "none"


def test_summarizers_differ_in_the_upper_layers_attention_only():
    """The commands themselves are the quickstart's, whose own test runs them."""
    windows = json.loads((ROOT / "fairseq_poolingformer" / "reader" / "config.json").read_text())["window_size"]
    upper = [layer for layer, window in enumerate(windows.split(",")) if window == "all"]
    found = trainings("seeds=1,2", script=SUMMARIES)
    assert [name for name in found if name.endswith("2")] == [
        f"{system}_2" for system in ("two_levels", "paper", "unmixed", "equal_keys", "equal_reach", "full", "window_32")
    ]
    w1 = {name: flags["--window-size"] for name, flags in found.items()}
    assert w1["full_1"] == windows
    assert w1["window_32_1"] == w1["two_levels_1"] == w1["paper_1"] == windows.replace("all", "32")
    two_levels = found["two_levels_1"]
    assert two_levels["--pooled-layers"] == f"{upper[0]}-{upper[-1]}"
    reach = int(two_levels["--pooled-window-size"])
    assert w1["equal_reach_1"] == windows.replace("all", str(reach))
    # κ and ξ are the defaults
    assert w1["equal_keys_1"] == windows.replace("all", str(32 + reach // DEFAULTS["pool_stride"]))
    own = {"--save-dir", "--log-file", "--seed", "--window-size", "--pooled-layers", "--pooled-window-size"}
    own |= {"--pool-type", "--pool-mix", "--pooled-init=level-one"}
    same = [{key: value for key, value in flags.items() if key not in own} for flags in found.values()]
    assert same == same[:1] * len(same)
    assert "--max-source-positions" in same[0]


def test_the_corpus_of_summaries_has_few_papers():
    (made,) = (options(words) for words in commands(SUMMARIES) if "fairseq_poolingformer.preprocess.facts" in words)
    assert made["--papers"] == "2"


def test_mistakes_are_explained():
    assert "systems= has no, which is not in" in call(RUN, "systems=no", "dry_run=1", status=1)
    assert "steps= must be some of" in call(RUN, "steps=no", "dry_run=1", status=1)
    assert "systems= has no, which is not in" in call(SUMMARIES, "systems=no", "dry_run=1", status=1)
    assert "precision= must be bf16 or fp32" in call(SUMMARIES, "precision=x", "dry_run=1", status=1)
    assert "papers= must be two numbers" in call(SUMMARIES, "papers=3", "dry_run=1", status=1)


def write_run(folder, bits: dict[str, float | None], seconds: float) -> None:
    """The files of a training that the report reads."""
    folder.mkdir()
    classes = [{"distance": name, "tokens": 5, "bits_per_token": value} for name, value in bits.items()]
    octaves = [{"distance": name, "tokens": 5, "bits_per_token": 2.0} for name in ("all", "none", "<= 2", "3-4", "> 4")]
    (folder / "bits.json").write_text(json.dumps([{"checkpoint": "x", "classes": classes, "octaves": octaves}]))
    (folder / "result.json").write_text(json.dumps({"cpu_seconds": seconds}))
    (folder / "train.log").write_text('{"loss": "5.0", "num_updates": "20"}\n{"loss": "4.0", "num_updates": "40"}\n')


def test_a_report_by_hand(tmp_path, monkeypatch, capsys):
    write_run(tmp_path / "a1", {"all": 3.0, "> 4": 5.0}, 10)
    write_run(tmp_path / "a2", {"all": 4.0, "> 4": 7.0}, 20)
    write_run(tmp_path / "b2", {"all": 3.5, "> 4": 4.0}, 30)
    runs = [f"a={tmp_path}/a1", f"a={tmp_path}/a2", f"b={tmp_path}/b1", f"b={tmp_path}/b2"]
    monkeypatch.setattr(sys, "argv", ["report.py", *runs, "--baseline", "a", "--output-folder", str(tmp_path)])
    report.main()
    printed = capsys.readouterr().out
    assert (tmp_path / "table.txt").read_text() == printed
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    head, *rows = (line.split("  ") for line in printed.splitlines())
    assert [cell.strip() for cell in head if cell] == ["all", "> 4", "CPU s", "seeds"]
    rows = [[cell.strip() for cell in row if cell] for row in rows]
    assert rows == [
        ["a", "3.50 [3.00, 4.00]", "6.00 [5.00, 7.00]", "15", "2"],
        ["b", "3.50", "4.00", "30", "1"],
        ["b - a", "-0.50", "-3.00", "1"],  # beside the baseline's same seed, the second
    ]
    assert report.octave_curve(tmp_path / "a1") == {2.0: 2.0, 4.0: 2.0}


@pytest.mark.slow
def test_the_start_copies_before_it_is_trained_and_a_system_continues_from_it(tmp_path):
    write_modules(tmp_path / "library")
    small = ("vocabulary=300", "start_updates=1,1", "updates=1", "tokens=256", "lengths=64,128", "distances=8,16")
    arguments = (f"sources={tmp_path}/library", f"out={tmp_path}/out", f"python={sys.executable}", "seeds=1", *small)
    output = call(RUN, *arguments, "systems=mix")
    row = output.splitlines()[-1].split()
    assert row[0] == "mix"
    assert row[-1] == "1"
    assert all(float(cell) > 0 for cell in row[1:] if cell != "-")
    assert "64 positions -> 128, by repeating them" in output
    again = call(RUN, *arguments, "systems=mix")
    assert again.splitlines()[-1] == output.splitlines()[-1]
    assert "begin training" not in again
    first = torch.load(tmp_path / "out" / "first_absolute.pt", weights_only=False)["model"]
    layer = "encoder.sentence_encoder.layers.2.self_attn."
    assert torch.equal(first[layer + "q_proj.weight"], first[layer + "k_proj.weight"])
    assert torch.equal(first[layer + "v_proj.weight"], nn.init.eye_(torch.empty(128, 128)))
