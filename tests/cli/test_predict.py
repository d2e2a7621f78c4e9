"""``poolingformer-predict``: which command a folder goes to, and the batches."""

import json

import pytest

from fairseq_poolingformer.cli import predict, predict_qa


@pytest.mark.parametrize("kind", ["natural_questions", "tydiqa", "wikihop", None])
@pytest.mark.parametrize("first", [True, False])
def test_folders_of_questions_go_to_their_own_command(tmp_path, monkeypatch, kind, first):
    """Wherever the folder is among the arguments."""
    if kind:
        (tmp_path / "corpus.json").write_text(json.dumps({"kind": kind}))
    taken = []
    monkeypatch.setattr(predict_qa, "main", lambda arguments: taken.append(("questions", arguments)))
    monkeypatch.setattr(predict, "run", lambda args: taken.append(("task", args.data)))
    flags = ["--path", "model.pt", "--output", "predictions.json"]
    arguments = [str(tmp_path), *flags] if first else [*flags, str(tmp_path)]
    predict.main(arguments)
    is_question = kind in ("natural_questions", "tydiqa")
    assert taken == [("questions", arguments) if is_question else ("task", tmp_path)]


def test_batches_hold_every_example_once_and_no_more_tokens_than_allowed():
    assert predict.batches([9, 3, 4, 30, 3, 10], 20) == [[3], [5, 0], [2, 1, 4]]
    assert predict.batches([5, 5, 5], 10) == [[0, 1], [2]]
    assert predict.batches([], 10) == []
