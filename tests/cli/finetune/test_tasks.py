"""Both tasks: what a model is given, what its outputs say, the official figures, and the baselines."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from fairseq_poolingformer.cli.finetune.base import Base
from fairseq_poolingformer.cli.finetune.tasks import IGNORED, TASKS
from tests.cli.finetune.conftest import read


def make(path, place, length=46):
    data = read(path)
    train = data.splits["train"]
    return TASKS[data.task](Base("me", place, data.task), length, data.labels, train), data.splits


@pytest.mark.parametrize(
    ("name", "best", "count"),
    [
        ("reviews.csv", {"accuracy": 100, "macro_f1": 100}, 2),
        ("pairs.jsonl", {"rouge1": 100, "rouge2": 100, "rougeL": 100, "rougeLsum": 100}, 1),
    ],
)
def test_right_predictions_have_all_points_and_baselines_an_interval(files, roberta, bart, name, best, count):
    task, splits = make(files / name, bart if name == "pairs.jsonl" else roberta)
    examples = splits["test"]
    figures = task.evaluate(examples, [getattr(one, "label", one.texts[-1]) for one in examples])
    assert {figure: figures[figure]["mean"] for figure in best} == pytest.approx(best, abs=1e-9)
    baselines = task.baselines(examples)
    assert len(baselines) == count
    for predictions in baselines.values():
        figures = task.evaluate(examples, predictions)
        assert all(0 <= figures[figure]["low"] <= figures[figure]["high"] for figure in best)
        assert [json.loads(line)[task.key] for line in task.lines(examples, predictions)] == predictions


def test_a_word_that_decides_is_found_by_the_linear_baseline(files, roberta):
    task, splits = make(files / "reviews.csv", roberta)
    usual, linear = task.baselines(splits["train"]).values()
    assert linear == [one.label for one in splits["train"]]
    assert len(set(usual)) == 1


def test_baselines_know_scripts_without_spaces(files, roberta, bart):
    task, _ = make(files / "reviews.csv", roberta)
    texts = ["この映画は最高でした。", "とても最高の本", "ひどい最悪な話。", "最悪の映画"]
    task.train = [SimpleNamespace(texts=(text,), label="good" if "高" in text else "bad") for text in texts]
    examples = [SimpleNamespace(texts=(text,)) for text in ("また最高だ", "また最悪だ")]
    assert task.baselines(examples)["TF-IDF, linear"] == ["good", "bad"]
    task, _ = make(files / "pairs.jsonl", bart)
    task.train = [SimpleNamespace(texts=("", "東京です。"))]
    assert task.baselines([SimpleNamespace(texts=("大阪は都市。東京",))]) == {"first 5 words": ["大阪は都市"]}
    assert task.any_script
    pair = [SimpleNamespace(texts=("", "東京です。"))]
    assert task.evaluate(pair, ["東京です。"])["rouge2"]["mean"] == pytest.approx(100)


def test_logits_of_labels(files, roberta):
    task, splits = make(files / "reviews.csv", roberta)
    train = splits["train"]
    features = task.features(train[:4])
    assert [task.names[one["labels"]] for one in features] == [one.label for one in train[:4]]
    assert task.decode(np.array([[0.0, 1], [2, 1]])) == [task.names[1], task.names[0]]
    unknown = SimpleNamespace(texts=("a b",), label="never seen")
    assert task.features([unknown])[0]["labels"] == IGNORED


def test_marks_in_a_text_are_text(files, bart):
    """BART's classifier reads its answer at </s>."""
    base = Base("me", bart, "classification")
    for text in ("the <s>old</s> hall", "</s></s>", "<mask> <pad>"):
        ids = base.tokenizer(text)["input_ids"]
        specials = [place for place, token in enumerate(ids) if token in base.tokenizer.all_special_ids]
        assert specials == [0, len(ids) - 1]
        assert base.tokenizer.decode(ids[1:-1]) == text


def test_documents_that_are_cut_are_counted(files, bart):
    task, splits = make(files / "pairs.jsonl", bart, 40)
    assert max(len(one["input_ids"]) for one in task.features(splits["train"])) == 40
    assert task.cut(np.array([40, 41, 12, 99])) == "2 of 4 documents are longer than 40 tokens; their rest is cut off"
    assert task.cut(np.array([40, 12])) == ""


def test_only_the_decoders_positions_cut_summaries_which_then_have_no_end(files, bart, capsys):
    task, splits = make(files / "pairs.jsonl", bart, 40)
    late = [SimpleNamespace(texts=("a", text)) for text in ("the thing " * 3, "the " * 60)]
    task.train = late = [*splits["train"] * 60, *late]
    end, features = task.tokenizer.eos_token_id, task.features(late)
    assert task.target_length == 40
    assert [len(one["labels"]) for one in features[-2:]] == [task.target_sizes[-2], 40]
    assert [one["labels"][-1] == end for one in features] == [True] * (len(late) - 1) + [False]
    task.start("short", {})
    assert f"1 of {len(late):,} summaries are cut to 40 tokens, without an end" in capsys.readouterr().out
    tokens = np.array([[*features[0]["labels"], IGNORED, IGNORED]])
    assert task.decode(tokens) == [late[0].texts[1]]
