"""The experiments of run_scripts/evidence: their corpus, what they would run, their tables, and that they run."""

from __future__ import annotations

import json
import shlex
import sys

import numpy as np
import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel, BertTokenizer

from fairseq_poolingformer.settings import DEFAULTS
from run_scripts import library_texts
from run_scripts.evidence import crossover, report, retrieval, sources
from run_scripts.evidence.systems import System, read_systems
from tests.forked_python import PYTHON
from tests.integration.conftest import options
from tests.lab import ROOT, run_script

RUN, SUMMARIES = "evidence/run.sh", "quickstart.sh"


def write_modules(folder, count: int = 12) -> None:
    """Modules in packages of their own, whose names come back."""
    for number in range(count):
        body = "".join(f"    alpha_{number}_{k % 9} = beta(alpha_{number}_{(k + 3) % 9}, {k})\n" for k in range(120))
        path = folder / f"package{number}" / "code.py"
        path.parent.mkdir(parents=True)
        path.write_text(f"def work_{number}():\n{body}", encoding="utf-8")


def commands(script: str, *arguments: str) -> list[list[str]]:
    """The commands of a dry run, each as its words."""
    output = run_script(script, f"python={sys.executable}", "out=/out", "dry_run=1", *arguments).replace("\\\n", " ")
    return [shlex.split(line) for line in output.splitlines() if line.startswith(sys.executable)]


def trainings(*arguments: str, script: str = RUN) -> dict[str, dict[str, str]]:
    """The flags of each training by its folder."""
    found = [words for words in commands(script, *arguments) if "fairseq_cli.train" in words]
    return {options(words)["--save-dir"].split("/")[2]: options(words) for words in found}


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
    names = list(read_systems())
    found = trainings("seeds=1,2", f"systems={','.join(names)}")
    starts = {name: found.pop(name) for name in ("copy_absolute", "start_absolute", "copy_relative", "start_relative")}
    assert list(found) == [f"{system}_{seed}" for seed in (1, 2) for system in names]
    own = {"--save-dir", "--log-file", "--log", "--seed"}
    for name, flags in found.items():
        system = read_systems()[name[:-2]]
        assert flags["--finetune-from-model"] == f"/out/start_{system.start}/checkpoints/checkpoint_last.pt"
        assert flags["--seed"] == name[-1]
        assert flags["--window-size"] == f"1,4,{system.w1},{system.w1}"
        assert flags["--pooled-layers"] == system.level2
        added = {word.split("=")[0] for word in system.flags.split()}
        attention = {"--window-size", "--pooled-layers", "--pooled-window-size", "--pool-type"}
        assert {key.split("=")[0] for key in flags} >= added - {"-"}
        same = found["fusion_1" if system.start == "relative" else "full_1"]
        everywhere = {k: v for k, v in flags.items() if k.split("=")[0] not in attention | own | added}
        assert everywhere.items() <= same.items()
    for start in ("start_absolute", "copy_absolute", "start_relative", "copy_relative"):
        assert (starts[start]["--max-positions"], starts[start]["--block-tokens"]) == ("8192", "256")
    assert "--random-position-offsets" in starts["start_absolute"]
    assert "--random-position-offsets" not in starts["start_relative"]


def test_each_system_has_as_many_keys_as_a_window_beside_it():
    systems = read_systems()
    windows = {system.keys(4096) for system in systems.values() if system.kind == "one window"}
    for system in systems.values():
        if system.kind != "full attention" and system.start == "absolute":
            assert system.keys(4096) in windows, system
    assert systems["full"].keys(1024) == 1024
    assert System("x", "absolute", "32", "256", "2-3", "ldconv", "--pool-stride=8").keys(4096) == 64 + 64
    assert System("x", "absolute", "32", "256", "2-3", "ldconv", "-").keys(4096) == 64 + 128
    assert System("x", "absolute", "8", "all", "2-3", "ldconv", "--pool-stride=16").keys(1024) == 16 + 64


def test_summarizers_differ_in_the_upper_layers_attention_only():
    """The commands themselves are the quickstart's, whose own test runs them."""
    windows = json.loads((ROOT / "fairseq_poolingformer" / "demo_model" / "config.json").read_text())["window_size"]
    upper = [layer for layer, window in enumerate(windows.split(",")) if window == "all"]
    systems = ("two_levels", "paper", "unmixed", "equal_keys", "equal_reach", "full", "window_32")
    found = trainings("seeds=1,2", f"systems={','.join(systems)}", "install=0", script=SUMMARIES)
    assert [name for name in found if name.endswith("2")] == [f"{system}_2" for system in systems]
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
    own |= {"--pool-type", "--pool-mix", "--pooled-init"}
    same = [{key: value for key, value in flags.items() if key not in own} for flags in found.values()]
    assert same == same[:1] * len(same)
    assert "--max-source-positions" in same[0]


def test_reports_read_what_the_evaluations_write():
    found = commands(RUN)
    evaluations = [options(words)["--output"] for words in found if "eval-mlm" in words]
    reports = [words for words in found if words[1].endswith("/report.py")]
    read = {
        f"{run.partition('=')[2]}/bits_{options(words)['--context']}.json"
        for words in reports
        for run in words
        if "=/out/" in run
    }
    assert read == set(evaluations) != set()


def test_mistakes_are_explained():
    assert "systems= has no, which is not in" in run_script(RUN, "systems=no", "dry_run=1", status=1)
    assert "steps= must be some of" in run_script(RUN, "steps=no", "dry_run=1", status=1)
    assert "papers= must be two numbers" in run_script(SUMMARIES, "papers=3", "dry_run=1", status=1)


def write_run(folder, bits: dict[str, float | None], seconds: float) -> None:
    """The files of a training that the report reads."""
    folder.mkdir()
    classes = [{"distance": name, "tokens": 5, "bits_per_token": value} for name, value in bits.items()]
    octaves = [{"distance": name, "tokens": 5, "bits_per_token": 2.0} for name in ("all", "none", "<= 2", "3-4", "> 4")]
    (folder / "bits_8.json").write_text(json.dumps([{"checkpoint": "x", "classes": classes, "octaves": octaves}]))
    (folder / "result.json").write_text(json.dumps({"cpu_seconds": seconds}))
    (folder / "train.log").write_text('{"loss": "5.0", "num_updates": "20"}\n{"loss": "4.0", "num_updates": "40"}\n')


def test_a_report_by_hand(tmp_path, capsys):
    write_run(tmp_path / "a1", {"all": 3.0, "> 4": 5.0}, 10)
    write_run(tmp_path / "a2", {"all": 4.0, "> 4": 7.0}, 20)
    write_run(tmp_path / "b2", {"all": 3.5, "> 4": 4.0}, 30)
    runs = [f"a={tmp_path}/a1", f"a={tmp_path}/a2", f"b={tmp_path}/b1", f"b={tmp_path}/b2"]
    report.main([*runs, "--context", "8", "--baseline", "a", "--output-folder", str(tmp_path)])
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
    assert report.octave_curve(tmp_path / "a1", 8) == {2.0: 2.0, 4.0: 2.0}


def test_the_crossover_by_hand(tmp_path, capsys):
    """Far names are those beyond half of the keys: here more than 48 tokens away, with 96 keys."""
    classes = ("all", "none", "<= 32", "33-48", "49-96", "> 96")
    for name, seed, bits in (
        ("window_48", 1, (5.0, 7.0, 2.0, 3.0, 6.0, 6.5)),
        ("window_48", 2, (5.0, 7.0, 2.0, 3.0, 6.2, 6.5)),
        ("full", 1, (4.0, 7.0, 2.0, 3.0, 3.0, 3.0)),
    ):
        write_run(tmp_path / f"{name}_{seed}", {}, 1)
        found = [{"distance": key, "tokens": 5 + key.startswith(">"), "bits_per_token": value}
                 for key, value in zip(classes, bits, strict=True)]  # fmt: skip
        (tmp_path / f"{name}_{seed}" / "bits_1024.json").write_text(json.dumps([{"classes": found}]))
    systems = read_systems()
    results = crossover.Results(tmp_path, systems, 1024)
    assert results.of_kind("one window") == ["window_48"]
    assert results.seeds("window_48", 48) == pytest.approx([(5 * 6 + 6 * 6.5) / 11, (5 * 6.2 + 6 * 6.5) / 11])
    assert results.bits("window_48", 0) == 5.0
    assert results.bits("full", 48) == 3.0
    with pytest.raises(ValueError, match="no class of distances begins after 50"):
        results.bits("full", 50)
    (tmp_path / "cost.json").write_text(json.dumps({"window_48": {"1024": 0.5}, "full": {"1024": 2}}))
    two = System("two", "absolute", "16", "128", "2-3", "ldconv", "--pool-stride=4")
    results.systems["two"], results.classes["two"] = two, [
        [found | {"bits_per_token": found["bits_per_token"] - 0.5} for found in results.classes["window_48"][0]]
    ]  # fmt: skip
    (row,) = [line.split() for line in crossover.differences(results).splitlines() if line.startswith("96")]
    assert row[:4] == ["96", "two", "-", "window_48"]
    assert row[4:] == ["-0.50"] * 6
    crossover.main(
        [str(tmp_path), "--contexts", "1024", "--cost", f"{tmp_path}/cost.json", "--output-folder", f"{tmp_path}/o"]
    )
    assert "no system has as many keys" in capsys.readouterr().out
    assert (tmp_path / "o" / "crossover_1024.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.full
def test_the_start_copies_before_it_is_trained_and_a_system_continues_from_it(tmp_path):
    write_modules(tmp_path / "library")
    small = ("vocabulary=300", "start_updates=1,1", "updates=1", "tokens=256", "lengths=64,128", "distances=8,16",
             "contexts=128,256", "positions=256")  # fmt: skip
    arguments = (f"sources={tmp_path}/library", f"out={tmp_path}/out", f"python={PYTHON}", "seeds=1", *small)
    arguments += ("systems=mix_192", "steps=corpus,start,train,cost")
    run_script(RUN, *arguments)
    for context in (128, 256):
        found = report.read_bits(tmp_path / "out" / "mix_192_1", context)
        assert all(bits > 0 for bits in found.values())
    cost = json.loads((tmp_path / "out" / "cost.json").read_text())
    assert set(cost["mix_192"]) == {"128", "256"}
    assert all(seconds > 0 for seconds in cost["mix_192"].values())
    assert "begin training" not in run_script(RUN, *arguments)
    first = torch.load(tmp_path / "out" / "first_absolute.pt", weights_only=False)["model"]
    layer = "encoder.sentence_encoder.layers.2.self_attn."
    assert torch.equal(first[layer + "q_proj.weight"], first[layer + "k_proj.weight"])
    assert torch.equal(first[layer + "v_proj.weight"], nn.init.eye_(torch.empty(128, 128)))


TEXTS = {  # a query and a document of distinct words each, in the forms that texts have
    "a.rst": "PEP: 1\n\nStatus\n======\n\nfinal now\n\nAbstract\n========\n\n{query}\n\nMain\n----\n\n{document}\n",
    "deep/b.md": "# Title {query}\n\n{query}\n\n## Main\n\n{document}\n",
    "c.txt": "First\n~~~~~\n{query}\nSecond\n~~~~~~\n{document}\n",
}


def test_retrieval_compares_its_systems_on_a_folder_of_texts(tmp_path, monkeypatch, capsys):
    for number, (name, text) in enumerate(TEXTS.items()):
        words = [f"w{number}{letter}" for letter in "abcdefghijklmnop"]
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text.format(query=" ".join(words), document=" ".join(words * 3)), encoding="utf-8")
    (tmp_path / "d.rst").write_text("no headings " * 40, encoding="utf-8")
    query, document = retrieval.divide((tmp_path / "a.rst").read_text(encoding="utf-8"))
    assert query.split() == [f"w0{letter}" for letter in "abcdefghijklmnop"]
    assert document.split() == ["Status", "======", "final", "now", "Main", "----", *query.split() * 3]
    vocabulary = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        *(f"w{n}{letter}" for n in range(3) for letter in "abcdefghijklmnop"),
    ]
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    BertTokenizer(str(tmp_path / "model" / "vocab.txt")).save_pretrained(tmp_path / "model")
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 48, "intermediate_size": 8}
    model = BertModel(BertConfig(vocab_size=len(vocabulary), max_position_embeddings=24, **sizes))
    model.save_pretrained(tmp_path / "model")
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path), "--model", str(tmp_path / "model"), "--tokens", "20", "80"])
    retrieval.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "3 documents, median 57 tokens"
    assert [line[:28].strip() for line in lines[2:]] == [
        *("chunks of 12, the best", "chunks of 12, their mean", "first 12 tokens", "first 24 tokens"),
        *("one vector: windows", "one vector: one softmax", "one vector: full attention"),
    ]
    assert [line[28:].split()[0] for line in (lines[2], *lines[-3:])] == ["100.0"] * 4  # these read every word


def test_reciprocal_ranks_count_ties_against_a_document():
    scores = np.array([[0.9, 0.1, 0.2], [0.5, 0.5, 0.1], [0.7, 0.8, 0.6]])
    assert retrieval.reciprocal_ranks(scores).tolist() == [1, 1 / 2, 1 / 3]
    assert retrieval.interval(np.array([1.0, 1.0])).split() == ["100.0", "(100.0", "to", "100.0)"]


def test_texts_of_the_library_have_their_packages_as_labels(tmp_path):
    long = " ".join(["word"] * 20)
    for place, text in (
        ("email", long),
        ("email/deep", f"{long} {long}"),
        ("http", "short"),
        ("xml", long),
        ("os", "x" + long),
    ):
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / place / "a.py").write_text(f'def f():\n    """{text}"""\n', encoding="utf-8")
    assert library_texts.docstrings(tmp_path) == {long: "email", f"{long} {long}": "email"}
