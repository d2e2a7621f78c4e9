"""The run scripts of question answering: the papers' numbers at full size, and whole runs at tiny size on a CPU."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.forked_python import PYTHON
from tests.integration.conftest import dry_run, module, options
from tests.lab import run_script
from tests.tasks.question_answering.folders import Example, write_folder

QUESTIONS = Path(__file__).parents[1] / "preprocess" / "fixtures" / "qa"


def commands(experiment: str, *arguments: object) -> dict[str, list[str]]:
    """The commands of a dry run on eight GPUs by their names, each as its words."""
    commands = dry_run("question_answering/run.sh", f"experiments={experiment}", "gpus=8", *arguments)
    return {module(words): words for words in commands}


@pytest.mark.parametrize(("partial_segments", "count"), [("skip", 1), ("negative", 6)])
def test_segments_that_see_a_part_are_trained_on_where_that_is_wanted(tmp_path, partial_segments, count):
    """Of six segments, five see a part of an answer that fits in none; the updates are counted with or without them."""
    flags = options(commands("nq_large", "steps=train", f"partial_segments={partial_segments}")["train"])
    assert flags["--partial-segments"] == partial_segments
    write_folder(tmp_path, {"train": [Example([5], [6] * 30, [(0, 2), (2, 20)], [(1, 1, 3, 15)])]})
    sizes = ["--max-positions", "15", "--doc-stride", "4", "--max-question-length", "6", "--negative-share", "1"]
    counter = "question_answering/count_segments.py"
    assert int(run_script(counter, tmp_path, *sizes, "--partial-segments", partial_segments)) == count


def test_an_ensemble_predicts_with_all_members_into_a_folder_of_its_own():
    output = call_dry("experiments=nq_ensemble", "gpus=0")
    members = ["nq_large", "nq_large_lr1", "nq_large_lr3"]
    predict, score = (
        shlex.split(line) for line in output.splitlines() if "cli.main predict " in line or "cli.main score " in line
    )
    assert options(predict)["--path"].split(":") == [f"/out/{name}/checkpoints/checkpoint_best.pt" for name in members]
    assert options(predict)["--output"] == "/out/nq_ensemble/predictions.0.json"
    assert score[4] == "/out/nq_ensemble/predictions.*.json"
    assert options(score)["--json"] == "/out/nq_ensemble/scores.json"
    assert "nothing to train: nq_ensemble averages nq_large,nq_large_lr1,nq_large_lr3" in output
    assert output.splitlines()[-1].split()[-6:] == ["78.5", "81.2", "79.8", "70.4", "54.8", "61.6"]


def test_every_shard_is_printed_for_pasting():
    """The commands of a dry run on three GPUs, in the shell: each writes its own file, and the last line waits."""
    lines = call_dry("experiments=nq_large", "gpus=3", "steps=predict").splitlines()
    shards = [line for line in lines if "--shard-id" in line]
    for number, line in enumerate(shards):
        words = shlex.split(line)
        assert words[:2] == ["env", f"CUDA_VISIBLE_DEVICES={number}"]
        assert options(words)["--shard-id"] == str(number)
        assert words[-3:] == [">", f"/out/nq_large/predict.{number}.out", "&"]
    assert len(shards) == 3
    assert lines[lines.index(shards[-1]) + 1] == "wait"


def test_a_converted_models_sentencepiece_model_is_found(tmp_path):
    """poolingformer-convert puts it into tokenizer/, fairseq's release beside model.pt."""
    for folder, file in (("fairseq", "sentencepiece.bpe.model"), ("converted", "tokenizer/sentencepiece.model")):
        (tmp_path / folder / file).parent.mkdir(parents=True)
        (tmp_path / folder / file).touch()
        words = commands("tydi_large", "steps=preprocess", f"pretrained={tmp_path}/{folder}")["preprocess"]
        assert options(words)["--sentencepiece-model"] == f"{tmp_path}/{folder}/{file}"


def test_a_vocabulary_of_its_own_is_for_models_from_scratch():
    dry = ["question_answering/nq.sh", f"python={PYTHON}", "dry_run=1", "gpus=0", "steps=preprocess", "vocabulary=99"]
    assert "vocabulary=99 has no pretrained weights: give pretrained=- too" in run_script(*dry, status=1)
    (words,) = dry_run("question_answering/nq.sh", "gpus=0", "steps=preprocess", "vocabulary=99", "pretrained=-")
    assert (options(words)["--sentencepiece-train"], options(words)["--html-tokens"]) == ("99", "drop")


def test_an_ensemble_never_overwrites_a_member(tmp_path):
    """Not even one that is not named among the members."""
    files = [tmp_path / "a" / name for name in ("predictions.0.json", "scores.json")]
    for name in ("a", "b", "c"):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        (tmp_path / name / "checkpoints" / "checkpoint_best.pt").touch()
    for file in files:
        file.write_text("a's")
    steps = ["experiments=nq_large", "steps=predict,score", f"out={tmp_path}", "gpus=0", f"python={PYTHON}"]
    for members in ("b", "a,b", "b,c"):
        output = run_script("question_answering/run.sh", *steps, "name=a", f"ensemble={members}", status=1)
        assert "name=a is a trained model" in output
    assert "needs a name" in run_script("question_answering/run.sh", *steps, "ensemble=b,c", status=1)
    output = run_script("question_answering/run.sh", *steps, "name=nq_large_lr1", "ensemble=b,c", status=1)
    assert "name=nq_large_lr1 is an experiment of" in output  # which may be trained later
    assert [file.read_text() for file in files] == ["a's"] * 2


def call_dry(*arguments: object) -> str:
    """The output of a dry run, each command on one line."""
    arguments = [f"python={PYTHON}", "out=/out", "dry_run=1", *arguments]
    return run_script("question_answering/run.sh", *arguments).replace("\\\n", " ")


@pytest.mark.full
def test_a_run_from_raw_questions_to_f1_and_an_ensemble(tmp_path):
    tiny = [f"out={tmp_path}", f"python={PYTHON}", "gpus=0", "experiments=tydi_large"]
    tiny += ["published_valid=-", "published_test=-"]
    tiny += [f"train_files={QUESTIONS}/tydiqa_train.jsonl", f"dev_files={QUESTIONS}/tydiqa_valid.jsonl"]
    tiny += ["pretrained=-", "vocabulary=390", "arch=poolingformer_roberta_tiny", "w1=8", "w2=32", "pooled_layers=1"]
    tiny += ["length=256", "doc_stride=128", "batch=2", "device_batch=2", "epochs=1", "recompute=0", "num_workers=0"]
    run_script("question_answering/run.sh", *tiny, "name=member", "steps=preprocess,train,predict,score")
    predictions = (tmp_path / "member" / "predictions.0.json").read_text()
    assert json.loads((tmp_path / "member" / "scores.json").read_text())["all"]["short"]["gold"] > 0
    ensemble = ["name=twice", "ensemble=member,member", "steps=predict,score"]
    output = run_script("question_answering/run.sh", *tiny, *ensemble)
    assert output.splitlines()[-1].split()[:2] == ["twice,", "valid"]
    assert (tmp_path / "member" / "predictions.0.json").read_text() == predictions
    expected, twice = map(read_lines, (tmp_path / name / "predictions.0.json" for name in ("member", "twice")))
    for name in ("example_id", "passage_answer_score", "minimal_answer_score"):  # the mean of two equal models
        assert [line[name] for line in twice] == pytest.approx([line[name] for line in expected], abs=1e-4)


def read_lines(path: Path) -> list[dict]:
    """The objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.full
def test_comparison_of_answers(tmp_path):
    def points(long, short):
        rest = {"precision": 0.1, "recall": 0.2}
        return {"long": {"best": rest | {"f1": long}}, "short": {"best": rest | {"f1": short}}}

    best = points(0.5, 0.25)
    average = {f"avg_passage_{figure}": value for figure, value in (("precision", 1), ("recall", 0.6), ("f1", 0.75))}
    average |= {f"avg_minimal_{figure}": 0.125 for figure in ("precision", "recall", "f1")}
    average = {"average": average}
    reports = {
        "nq": {"official": {}, "all": best},
        "english": {"official": average, "languages": {"english": {}}, "all": best},
        "tydi": {"official": average, "languages": {"thai": {}, "english": {}}, "all": best},
        "nq2": {"official": {}, "all": points(0.75, 0.25)},
    }
    for name, report in reports.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(report))
    files = [f"{name}={tmp_path}/{name}.json" for name in reports]
    files += [f"seeds={tmp_path}/nq.json", f"seeds={tmp_path}/nq2.json", f"missing={tmp_path}/no.json"]
    output = run_script("compare.py", "answers", *files, "nq=77.7,77.3,77.5,-,-,58.6")
    assert re.search(
        r"^seeds +10\.00 +20\.00 +62\.50 \[50\.00, 75\.00\] +10\.00 +20\.00 +25\.00( +-){6}$", output, re.MULTILINE
    )
    assert re.search(r"^missing( +-){12}$", output, re.MULTILINE)
    rows = [line.split() for line in output.splitlines()]
    nq = ["10.00", "20.00", "50.00", "10.00", "20.00", "25.00"]
    assert rows[1] == ["nq", *nq, "77.7", "77.3", "77.5", "-", "-", "58.6"]
    assert rows[2] == ["english", *nq, *["-"] * 6]
    assert rows[3] == ["tydi", "100.00", "60.00", "75.00", "12.50", "12.50", "12.50", *["-"] * 6]
