import io
import json
import os
import subprocess
import sys

import pytest

from fairseq_poolingformer.cli import score
from fairseq_poolingformer.tasks.summarization import perl

REFERENCES = ["We pool keys. It helps.", "A window of 512.", "Nothing else."]
LOG = "2024-01-01 10:00:00 | INFO | fairseq_cli.generate | NOTE: base 2"


def generated(index: int, *hypotheses: str, start: float = -0.5) -> str:
    """The lines of one input as fairseq_cli/generate.py prints them, best hypothesis first."""
    lines = [f"S-{index}\tsource {index}", f"T-{index}\t{REFERENCES[index]}"]
    for rank, hypothesis in enumerate(hypotheses):
        value = start - rank
        lines += [f"H-{index}\t{value}\t12 34", f"D-{index}\t{value}\t{hypothesis}", f"P-{index}\t-0.1 -0.2"]
    return "\n".join(lines) + "\n"


@pytest.fixture
def files(tmp_path):
    def write(**texts: str) -> list[str]:
        for name, text in texts.items():
            (tmp_path / name).write_bytes(text.encode())
        return [str(tmp_path / name) for name in texts]

    return write


def run(capsys, *argv: str) -> tuple[int, str, str]:
    status = score.main([*argv, "--no-perl"])
    return status, *capsys.readouterr()


def test_shards_in_input_order(files, tmp_path, capsys):
    awkward = "We\tpool\rkeys.\u2028It\u0085helps.\nD'accord"
    shards = files(
        shard0=f"{LOG}\n" + generated(2, "Nothing.") + generated(0, awkward) + f"{LOG}\nGenerate test with beam=5: x\n",
        shard1=generated(1, "A window.", "A worse one."),
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
    assert [(row["tool"], row["stemming"], row["sentences"]) for row in result["flavours"]] == [
        ("rouge-score", True, "rule"),
        ("rouge-score", True, "period"),
        ("rouge-score", False, "rule"),
        ("rouge-score", False, "period"),
    ]
    assert set(result["flavours"][0]["scores"]["rougeLsum"]["f1"]) == {"mean", "low", "high"}
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "references",
        "scores.json",
        "shard0",
        "shard1",
        "test.hypo",
    ]


def test_a_shard_without_inputs_is_no_mistake(files, capsys):
    empty = "Generate test with beam=5: shard 1 of 2 has no examples\n"
    shards = files(shard0=generated(0, "We pool keys."), shard1=f"{LOG}\n{empty}")
    status, out, _ = run(capsys, *shards)
    assert status == 0
    assert "ROUGE of 1 examples" in out


def test_targets_stand_in_for_references_and_best_is_kept(files, tmp_path, capsys):
    text = generated(0, REFERENCES[0]) + generated(1, "Worse", start=-3) + generated(1, REFERENCES[1])
    output = str(tmp_path / "hypo")
    status, out, _ = run(capsys, *files(out=text), "--output", output)
    assert status == 0
    assert "F1 100.00" in out
    with open(output, encoding="utf-8") as file:
        assert file.read().splitlines() == REFERENCES[:2]


def test_standard_input(monkeypatch, capsys):
    content = (generated(0, REFERENCES[0])).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert run(capsys)[0] == 0


def test_plain_hypotheses(files, capsys):
    hypotheses, references = files(hypo="a\u2028b\r\n\nc\n", references="a b\nb\nc\n")
    status, out, _ = run(capsys, hypotheses, "--references", references)
    assert status == 0
    assert "ROUGE of 3 examples" in out


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"out": generated(0, "a"), "references": "a\nb\nc\n"}, "1, 2. Give every shard's file, and the references of"),
        ({"out": generated(0, "a") + generated(2, "c")}, "1 of 3 inputs have no hypothesis: 1."),
        ({"out": generated(0, "a") + "T-1\tx\nS-1\ty\n"}, "1 of 2 inputs have no hypothesis: 1."),
        ({"out": generated(1, "a"), "references": "a\n"}, "1 references, but also hypotheses for input 1"),
        ({"out": generated(0, "a"), "other": generated(0, "b")}, "input 0 has different hypotheses in"),
        ({"out": "Generate test with beam=5: x\n", "references": "a\n"}, "has no D- line"),
        ({"out": "H-0\t-0.1\t12 34\n", "references": "a\n"}, "has no D- line"),
        ({"out": "D-0\tno score\n", "references": "a\n"}, "out, line 1: D-0 has no score"),
        ({"out": "D-0\t-0.1\ta\n"}, "no T- line (target) for input 0"),
        ({"out": "a\nb\n", "references": "a\n"}, "2 hypotheses but 1 references"),
        ({"out": "a\n", "other": "b\n", "references": "a\n"}, "plain hypotheses are one file"),
        ({"out": "a\n"}, "plain hypotheses need --references"),
        ({"out": "", "references": ""}, "the input has no hypothesis"),
    ],
)
def test_errors_for_people(files, capsys, texts, message):
    paths = files(**texts)
    if "references" in texts:
        paths.insert(-1, "--references")
    status, out, err = run(capsys, *paths)
    assert (status, out) == (1, "")
    assert message in err


def test_names_the_line_that_is_not_utf8(tmp_path, capsys):
    path = tmp_path / "hypo"
    path.write_bytes(b"good\nbad \xff\n")
    status, _, err = run(capsys, str(path), "--references", str(path))
    assert status == 1
    assert f"{path}, line 2: not UTF-8" in err


def test_lead_baseline(files, tmp_path, capsys):
    documents, references = files(docs="We pool keys. More.\nA window of 512.\n", references="We pool\nA window\n")
    output = str(tmp_path / "lead")
    lead = ["--documents", documents, "--lead-words", "2", "--references", references]
    status, out, _ = run(capsys, *lead, "--output", output)
    assert status == 0
    assert "F1 100.00" in out
    with pytest.raises(SystemExit):
        score.main(["--documents", documents])
    with pytest.raises(SystemExit):
        score.main([references, *lead])


def test_perl_rows(files, capsys):
    hypotheses, references = files(hypo="We pooled the keys.\n", references="It pools keys.\n")
    assert score.main([hypotheses, "--references", references]) == 0
    out, err = capsys.readouterr()
    rows = [line for line in out.splitlines() if line.startswith("ROUGE-1.5.5 (")]
    said = [line for line in err.splitlines() if line.startswith("no row for ROUGE-1.5.5 (")]
    assert len(rows) + len(said) == 3
    assert (perl.rouge155_obstacle() is None) == ("ROUGE-1.5.5's ROUGE-L is summary-level" in out)


def test_a_reader_that_has_seen_enough_is_no_mistake(files):
    """As in ``poolingformer-score … | head``; the pipe is closed before anything is written."""
    (output,) = files(out=generated(0, REFERENCES[0]))
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "fairseq_poolingformer.cli.score", output, "--no-perl"]
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, text=True)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")


CONLL = "#begin document (a); part 000\n{}#end document\n"
WORD = "a\t0\t0\tword\t-\t*\t-\t-\t-\t-\t*\t({})\n"
TRIVIAQA = {"Domain": "Wikipedia", "Data": [{"QuestionId": "q", "Answer": {"NormalizedAliases": ["x"]}}]}
HOTPOTQA = [{"_id": "q", "answer": "x", "supporting_facts": [["t", 0]]}]
WIKIHOP = [{"id": "q", "query": "?", "candidates": ["x", "y"], "supports": [], "answer": "x"}]
LABELLED = '{"id": "d", "text": "t", "label": "x"}\n'
NATURAL_QUESTIONS = {
    "example_id": 1,
    "annotations": [{"long_answer": {"start_token": 3, "end_token": 9}, "short_answers": [], "yes_no_answer": "NONE"}],
}
TYDIQA = {
    "example_id": 1,
    "language": "thai",
    "annotations": [
        {
            "passage_answer": {"candidate_index": 4},
            "minimal_answer": {"plaintext_start_byte": 3, "plaintext_end_byte": 9},
            "yes_no_answer": "NONE",
        }
    ],
}
ANSWER = {"example_id": 1, "long_answer": {"start_token": 3, "end_token": 9}, "long_answer_score": 1.0}
PASSAGE = {"example_id": 1, "language": "thai", "passage_answer_index": 4, "passage_answer_score": 1.0}


@pytest.mark.parametrize(
    ("gold", "predictions", "output", "former"),
    [
        ("\n".join(REFERENCES), "".join(generated(k, REFERENCES[k]) for k in range(3)), "ROUGE of 3 examples", None),
        (json.dumps(WIKIHOP), '{\n "q": "x"}', "accuracy            100.00", "wikihop"),
        (json.dumps(TRIVIAQA), '{"q": "x"}', "exact_match  100.00", "triviaqa"),
        (json.dumps(HOTPOTQA), '{"answer": {"q": "x"}, "sp": {"q": [["t", 0]]}}', "joint_em      100.00", "hotpotqa"),
        (
            LABELLED,
            '{"id": "d", "label": "x", "probability": 1}',
            "accuracy            100.00",
            "document_classification",
        ),
        (
            CONLL.format(2 * WORD.format(1)),
            CONLL.format(2 * WORD.format(5)),
            "conll_f1            100.00",
            "coreference",
        ),
        (
            json.dumps(NATURAL_QUESTIONS),
            json.dumps({"predictions": [ANSWER | {"short_answers_score": 0}]}),
            "Natural Questions: 1 examples, 1 predictions",
            "",
        ),
        (
            json.dumps(TYDIQA),
            json.dumps(PASSAGE | {"minimal_answer_score": 0}),
            "TyDi QA: 1 examples, 1 predictions",
            "",
        ),
    ],
    ids=["summaries", "wikihop", "triviaqa", "hotpotqa", "labels", "coreference", "natural_questions", "tydiqa"],
)
def test_the_file_says_whose_predictions_it_holds(files, capsys, gold, predictions, output, former):
    """The same output as by the former names."""
    gold, predictions = files(gold=gold, predictions=predictions)
    flags = ["--no-perl"] if former is None else []
    assert score.main([predictions, "--gold", gold, *flags]) == 0
    found = capsys.readouterr()
    assert output in found.out
    if former is not None:
        old = ["--gold", gold, "--predictions", predictions]
        assert (score.main_of_tasks([former, *old]) if former else score.main_of_questions(old)) == 0
        assert capsys.readouterr() == found
        assert score.main([predictions, "--gold", gold, "--task", former or "question_answering"]) == 0
        assert capsys.readouterr() == found


def test_an_unknown_form_and_an_ambiguous_one(files, capsys):
    gold, plain, strings = files(gold="?", plain="text\n", strings='{"q": "x"}')
    assert score.main([plain, "--gold", gold]) == 1
    message = capsys.readouterr().err
    assert f"poolingformer-score: {plain}: not recognized; name the task with --task. The forms are " in message
    assert 'hotpotqa: an object with "answer" and "sp"; coreference: the column format of CoNLL-2012' in message
    assert score.main([strings, "--gold", gold]) == 1
    assert "strings: may be of wikihop or triviaqa; give --task with one of them" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        score.main([strings, "--gold", gold, "--task", "qa"])
    assert "--task qa: no such task; choose one of long_summarization, " in capsys.readouterr().err
    with pytest.raises(SystemExit):
        score.main(["--gold", gold, "--task", "wikihop"])
    assert "give one file of predictions" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "--gold", "there"], "give the file of predictions (nowhere is not a file)"),
        (["--gold", "there"], "give the file of predictions (none is named)"),
        (["there", "--gold", "nowhere"], "--gold nowhere: no such file"),
    ],
)
def test_a_file_that_is_not_there_is_named(arguments, message, tmp_path, monkeypatch, capsys):
    (tmp_path / "there").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert score.main(arguments) != 0
    assert message in capsys.readouterr().err
