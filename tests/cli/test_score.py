import json
from pathlib import Path

import pytest

from fairseq_poolingformer.cli import score
from fairseq_poolingformer.tasks.summarization.rouge import files2rouge_obstacle

REFERENCES = ["We pool keys. It helps.", "A window of 512.", "Nothing else."]
LOG = "2024-01-01 10:00:00 | INFO | fairseq_cli.generate | NOTE: base 2"


END = "Generate test with beam=5: x\n"


def generated(index: int, *hypotheses: str, start: float = -0.5) -> str:
    """The lines of one input as fairseq_cli/generate.py prints them, best hypothesis first."""
    lines = [f"S-{index}\tsource {index}", f"T-{index}\t{REFERENCES[index]}"]
    for rank, hypothesis in enumerate(hypotheses):
        value = start - rank
        lines += [f"H-{index}\t{value}\t12 34", f"D-{index}\t{value}\t{hypothesis}", f"P-{index}\t-0.1 -0.2"]
    return "\n".join(lines) + "\n"


@pytest.fixture
def files(tmp_path):
    def write(**texts: str | bytes) -> list[str]:
        for name, text in texts.items():
            (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return [str(tmp_path / name) for name in texts]

    return write


def run(capsys, *argv: str) -> tuple[int, str, str]:
    status = score.main(["--task", "long_summarization", *argv, "--no-perl"])
    return status, *capsys.readouterr()


@pytest.mark.parametrize("name", ["--output", "--json"])
def test_a_file_that_cannot_be_written_is_told_before_the_work(capsys, tmp_path, name):
    status, out, err = run(capsys, "none.out", "--references", "none", name, str(tmp_path / "none" / "file"))
    assert (status, out) == (1, "")
    assert f"{tmp_path}/none: no such folder to write file into" in err


@pytest.mark.parametrize(("flag", "name"), [("--output", "gen.out"), ("--json", "gen.out"), ("--output", "wanted")])
def test_what_is_scored_is_not_replaced(files, capsys, flag, name):
    names = files(**{"gen.out": generated(0, "We pool.") + END, "wanted": f"{REFERENCES[0]}\n"})
    path = dict(zip(("gen.out", "wanted"), names, strict=True))
    with pytest.raises(SystemExit, match="2"):
        run(capsys, names[0], "--references", names[1], flag, path[name])
    assert f"{flag} {path[name]}: is an input of this command" in capsys.readouterr().err
    assert [Path(name).read_text().count("pool") for name in names] == [2, 1]


def test_shards_in_input_order(files, tmp_path, capsys):
    awkward = "We\tpool\rkeys.\u2028It\u0085helps.\nD'accord"
    shards = files(
        shard0=f"{LOG}\n" + generated(2, "Nothing.") + generated(0, awkward) + f"{LOG}\n{END}",
        shard1=generated(1, "A window.", "A worse one.") + END,
        references="\n".join(REFERENCES) + "\n",
    )
    output, report = str(tmp_path / "test.hypo"), str(tmp_path / "scores.json")
    status, out, err = run(capsys, *shards[:2], "--references", shards[2], "--output", output, "--json", report)
    assert (status, err) == (0, "")
    with open(output, encoding="utf-8", newline="") as file:
        assert file.read() == "We pool keys. It helps. D'accord\nA window.\nNothing.\n"
    assert "3 examples" in out
    assert "stemming on" in out
    with open(report, encoding="utf-8") as file:
        result = json.load(file)
    assert result["examples"] == 3
    flavours = [(row["tool"], row["stemming"]) for row in result["flavours"]]
    assert flavours == [("rouge-score", True), ("rouge-score", False)]
    assert set(result["flavours"][0]["scores"]["rougeLsum"]["f1"]) == {"mean", "low", "high"}
    names = ["references", "scores.json", "shard0", "shard1", "test.hypo"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_other_scripts_are_said_and_compared(files, capsys):
    texts = "東京は日本の首都です。\nМосква столица России\n"
    hypotheses, references = files(hypo=texts, references=texts)
    status, out, _ = run(capsys, hypotheses, "--references", references)
    assert status == 0
    assert "in 2 of 2 references more than 5% of the letters are others" in out
    rows = {line.split("  ")[0]: line.split()[-4:] for line in out.splitlines()}
    assert rows["any script"] == ["100.00"] * 4
    assert rows["rouge-score"] == ["0.00"] * 4


A = generated(0, "a")
OF_A, OF_B = (f"Checkpoint runs/{name}.pt, checksum {digit * 16}\n" for name, digit in ("a0", "b1"))
EMPTY = f"{LOG}\nGenerate test with beam=5: shard 1 of 2 has no examples\n"
BEST = generated(0, REFERENCES[0]) + generated(1, REFERENCES[1], "Worse") + END


@pytest.mark.parametrize(
    ("texts", "count", "hypotheses", "warning"),
    [
        ({"shard0": generated(0, "We pool keys.") + END, "shard1": EMPTY}, 1, ["We pool keys."], ""),
        ({"out": BEST}, 2, REFERENCES[:2], ""),  # targets stand in for references, and the best hypothesis is kept
        ({"hypo": "a\u2028b\r\n\nc\n", "references": "a b\nb\nc\n"}, 3, ["a b", "", "c"],
         "1 of 3 hypotheses are empty, which score 0\n"),
        ({"hypo": "We pool keys.\nAnything.\n", "references": "We pool keys.\n\n"}, 1, None,
         "1 of 2 documents have no reference and are left out\n"),
    ],
)  # fmt: skip
def test_hypotheses_are_summaries(files, tmp_path, capsys, texts, count, hypotheses, warning):
    """With --task and, of fairseq-generate's output or beside references, without it."""
    paths, output = files(**texts), str(tmp_path / "output")
    if "references" in texts:
        paths.insert(-1, "--references")
    status, out, err = run(capsys, *paths, "--output", output)
    assert (status, err) == (0, warning)
    assert f"ROUGE of {count} examples" in out
    assert ("F1 100.00" in out) == (hypotheses is None or texts.get("out") == BEST)
    if hypotheses is not None:
        with open(output, encoding="utf-8") as file:
            assert file.read().splitlines() == hypotheses
    assert score.main([*paths, "--no-perl"]) == 0
    assert f"ROUGE of {count} examples" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"out": A + END, "references": "a\nb\nc\n"}, "1, 2. Give every shard's file, and the references of"),
        ({"out": A + generated(2, "c") + END}, "1 of 3 inputs have no hypothesis: 1."),
        ({"out": generated(1, "a") + END, "references": "a\n"}, "1 references, but also hypotheses for input 1"),
        ({"out": A + END, "other": generated(0, "b") + END}, "input 0 has different hypotheses in"),
        ({"out": "Generate test with beam=5: x\n", "references": "a\n"}, "has no D- line"),
        ({"out": "a\nb\n", "references": "a\n"}, "2 hypotheses but 1 references"),
        ({"out": "a\n", "other": "b\n", "references": "a\n"}, "plain hypotheses are one file"),
        ({"out": A + generated(1, "b") + END, "references": "x y\nz\n"}, "2 of 2 references are not those"),
        ({"out": "a\n", "references": "\n"}, "no document has a reference"),
        ({"out": "\n \n", "references": "a\nb\n"}, "all 2 hypotheses are empty"),
        ({"out": generated(0, "") + END, "references": f"{REFERENCES[0]}\n"}, "all 1 hypotheses are empty"),
        ({"out": f"good\n{LOG}\n", "references": "a\nb\n"}, "out, line 2: a line of a log in place of"),
        ({"out": "INFO:fairseq.trainer:begin training epoch 1\n", "references": "a\n"}, "out, line 1: a line of a log"),
        (
            {"out": OF_A + A + END, "other": OF_B + generated(1, "b") + END},
            "hypotheses of several checkpoints: runs/a.pt (/",
        ),
        ({"out": OF_A + A + END + OF_B + generated(1, "b") + END}, "of several checkpoints: runs/a.pt (/"),
        ({"out": b"good\nbad \xff\n", "references": "a\n"}, "out, line 2: not UTF-8"),
    ],
)
def test_errors_for_people(files, capsys, texts, message):
    paths = files(**texts)
    if "references" in texts:
        paths.insert(-1, "--references")
    status, out, err = run(capsys, *paths)
    assert (status, out) == (1, "")
    assert message in err


def test_lead_baseline(files, tmp_path, capsys):
    documents, references = files(docs="We pool keys. More.\nA window of 512.\n", references="We pool\nA window\n")
    output = str(tmp_path / "lead")
    lead = ["--documents", documents, "--lead-words", "2", "--references", references]
    status, out, _ = run(capsys, *lead, "--output", output)
    assert status == 0
    assert "F1 100.00" in out
    with pytest.raises(SystemExit):
        run(capsys, "--documents", documents)
    with pytest.raises(SystemExit):
        run(capsys, references, *lead)


def test_perl_rows(files, capsys):
    hypotheses, references = files(hypo="We pooled the keys.\n", references="It pools keys.\n")
    assert score.main(["--task", "long_summarization", hypotheses, "--references", references]) == 0
    out, err = capsys.readouterr()
    rows = [line for line in out.splitlines() if line.startswith("ROUGE-1.5.5 (")]
    said = [line for line in err.splitlines() if line.startswith("no row of ROUGE-1.5.5: files2rouge ")]
    assert len(rows) + len(said) == 1
    assert (files2rouge_obstacle() is None) == ("ROUGE-1.5.5's ROUGE-L is summary-level" in out)


def test_the_data_folder_of_the_gold_file_says_the_task(tmp_path, monkeypatch):
    taken = []
    monkeypatch.setattr(score, "_scores_of", lambda name: taken.append(name) or (_ for _ in ()).throw(ValueError))
    (tmp_path / "corpus.json").write_text('{"kind": "tydiqa"}')
    assert score.main(["predictions", "--gold", str(tmp_path / "gold")]) == 1
    assert taken == ["question_answering"]


def test_a_task_that_nobody_names_is_asked_for(files, capsys):
    gold, predictions = files(gold="?", predictions='{"q": "x"}')
    for flags, message in (
        ([], "whose predictions are these? give --task NAME; --help lists the tasks"),
        (["--task", "qa"], "--task qa: no such task; choose one of long_summarization, "),
    ):
        with pytest.raises(SystemExit):
            score.main([predictions, "--gold", gold, *flags])
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit):
        score.main(["--gold", gold, "--task", "wikihop"])
    assert "give one file of predictions" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--references", "refs"], []])
def test_what_fairseq_generate_printed_and_references_are_summaries(files, capsys, monkeypatch, tmp_path, flags):
    """Without --task; the shards may be named by a pattern."""
    files(**{"0.out": f"{LOG}\n{generated(0, 'We pool keys.')}{END}", "1.out": generated(1, "A window.") + END})
    files(refs="\n".join(REFERENCES[:2]))
    monkeypatch.chdir(tmp_path)
    inputs = ["*.out"] if flags else ["0.out", "1.out"]
    assert score.main([*inputs, *flags, "--no-perl"]) == 0
    assert "ROUGE of 2 examples" in capsys.readouterr().out
