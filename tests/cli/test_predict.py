"""``poolingformer predict``: the options of a folder's task, and the batches."""

import json

import pytest

from fairseq_poolingformer.cli import predict


@pytest.mark.parametrize("kind", ["natural_questions", "tydiqa", "wikihop", None])
@pytest.mark.parametrize("first", [True, False])
def test_a_folder_of_questions_has_the_options_of_its_task(tmp_path, monkeypatch, capsys, kind, first):
    """Wherever the folder is among the arguments."""
    if kind:
        (tmp_path / "corpus.json").write_text(json.dumps({"kind": kind}))
    taken = []
    if kind in ("natural_questions", "tydiqa"):
        monkeypatch.setattr(predict, "run", lambda args, module: taken.append(args))
    flags = ["--output", "predictions.json", "--readable", "text.tsv"]
    arguments = [str(tmp_path), *flags] if first else [*flags[:2], str(tmp_path), *flags[2:]]
    if kind in ("natural_questions", "tydiqa"):
        assert predict.main(arguments) == 0
        assert (taken[0].data, str(taken[0].readable)) == (tmp_path, "text.tsv")
        return
    with pytest.raises(SystemExit):
        predict.main(arguments)
    assert "unrecognized arguments: --readable text.tsv" in capsys.readouterr().err


def test_a_checkpoint_must_be_named(tmp_path, capsys):
    (tmp_path / "corpus.json").write_text('{"kind": "wikihop"}')
    with pytest.raises(SystemExit):
        predict.main([str(tmp_path), "--output", str(tmp_path / "p.json")])
    assert "give --model, the checkpoint or folder to predict with" in capsys.readouterr().err


def test_a_folder_that_is_not_predicted_names_the_command_that_reads_it(tmp_path, capsys):
    for corpus, command in (
        (
            "arxiv_pubmed",
            'fairseq-generate {} --user-dir "$(poolingformer user-dir)" --task long_summarization --path m',
        ),
        ("char_lm", "poolingformer eval-lm {} --model m"),
    ):
        (tmp_path / "corpus.json").write_text(json.dumps({"corpus": corpus}))
        assert predict.main([str(tmp_path), "--model", "m", "--output", str(tmp_path.parent / "p.json")]) == 1
        assert f"{command.format(tmp_path)} reads it" in capsys.readouterr().err
