"""A forgotten or wrong --task, --criterion or --arch against the data folder, the architecture and the checkpoint."""

import json
from contextlib import nullcontext

import pytest
import torch
from fairseq import checkpoint_utils, options, tasks

import fairseq_poolingformer
from fairseq_poolingformer import checkpoints as checkpoint_files
from fairseq_poolingformer.patches import CheckpointError
from fairseq_poolingformer.weights.files import write_checkpoint
from tests import lab
from tests.models import tiny_bart
from tests.tasks.folders import write

fairseq_poolingformer.register()


LANGUAGES = ("--source-lang", "source", "--target-lang", "target")


@pytest.fixture
def pairs(tmp_path):
    folder = tiny_bart.write_data_folder(tmp_path / "pairs", splits={"train": [([5, 6], [5])]})
    (folder / "corpus.json").write_text(json.dumps({"corpus": "arxiv_pubmed"}))
    return folder


def setup(folder, *flags, arch="poolingformer_bart_tiny"):
    arguments = [str(folder), "--user-dir", tiny_bart.USER_DIR, "--arch", arch, *flags]
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    return args, tasks.setup_task(args)


def test_a_forgotten_task_is_named(pairs):
    message = r"pairs is a data folder for --task long_summarization, not for --task translation"
    with pytest.raises(ValueError, match=message):
        setup(pairs)
    setup(pairs, "--task", "long_summarization")


@pytest.mark.parametrize("task", ["translation", "long_masked_lm", "long_summarization"])
def test_unknown_flags_name_the_task_of_the_folder(pairs, capsys, task):
    with pytest.raises(SystemExit):
        setup(pairs, "--max-target-lengths", "8", *(["--task", task] if task != "translation" else []))
    *_, line = capsys.readouterr().err.splitlines()
    assert "error: unrecognized arguments: --max-target-lengths 8; " in line
    named = f"{pairs} is a data folder for --task long_summarization, not for --task {task}"
    likely = "did you mean --max-target-length"
    assert (named in line, likely in line) == ((False, True) if task == "long_summarization" else (True, False))
    assert "usage" not in line


@pytest.mark.parametrize(("kind", "expected"), [("wikihop", "wikihop"), ("tydiqa", "question_answering")])
@pytest.mark.parametrize("task", ["masked_lm", "document_classification"])
def test_a_folder_of_another_task_is_refused(kind, expected, task, tmp_path):
    write(tmp_path, kind, "train", {}, {}, labels=["a"])
    with pytest.raises(ValueError, match=f"is a data folder for --task {expected}, not for --task {task}"):
        setup(tmp_path, "--task", task, arch="poolingformer_roberta_tiny")


@pytest.mark.parametrize("task", ["long_masked_lm", "masked_lm", "language_modeling", "wikihop"])
def test_documents_may_be_read_by_fairseqs_tasks(task, tmp_path):
    """Tasks that read the same files."""
    write(tmp_path, "x", "train", {}, {})
    (tmp_path / "corpus.json").write_text(json.dumps({"corpus": "wikipedia"}))
    messages = {"wikihop": "is a data folder for --task long_masked_lm, not for --task wikihop"}
    messages["long_masked_lm"] = "tokenizer"  # which this folder lacks
    refused = (
        pytest.raises((ValueError, FileNotFoundError), match=messages[task]) if task in messages else nullcontext()
    )
    with refused:
        setup(tmp_path, "--task", task, arch="poolingformer_roberta_tiny")


def test_a_folder_of_fairseqs_is_left_to_fairseq(pairs):
    (pairs / "corpus.json").unlink()
    args, task = setup(pairs, *LANGUAGES)
    with pytest.raises(ValueError, match="--arch poolingformer_bart_tiny pools from the first position, and this task"):
        task.build_model(args)
    args, task = setup(pairs, *LANGUAGES, "--left-pad-source")
    task.build_model(args)


def test_a_checkpoint_names_its_task(pairs, tmp_path):
    args = tiny_bart.parse(pairs, *tiny_bart.SIZES)
    task, model = tiny_bart.build(pairs, *tiny_bart.SIZES)
    path = str(tmp_path / "x.pt")
    write_checkpoint(path, vars(args), model.state_dict())
    checkpoint_utils.load_model_ensemble_and_task([path], task=task)
    (pairs / "corpus.json").unlink()
    _, other = setup(pairs, *LANGUAGES)
    with pytest.raises(CheckpointError, match=r"x\.pt: a checkpoint of --task long_summarization, and this command"):
        checkpoint_utils.load_model_ensemble_and_task([path], task=other)
    assert checkpoint_files.read(path)["args"].task == "long_summarization"


@pytest.mark.parametrize("criterion", ["masked_lm", "question_answering", "long_masked_lm"])
def test_a_criterion_of_another_task_is_refused(pairs, criterion):
    args, task = setup(pairs, "--task", "long_summarization", "--criterion", criterion)
    with pytest.raises(ValueError, match=f"needs --criterion linear_cross_entropy, and it is {criterion}"):
        task.build_criterion(args)


def test_a_released_checkpoint_is_generated_with_by_its_symbols(tmp_path):
    """bart.base has other lines in its dict.txt than the data folder: rows go by symbols, as in training."""
    _, task = setup(lab.summaries(), "--task", "long_summarization")
    good = checkpoint_files.load(lab.bart())
    table = good["model"]["encoder.embed_tokens.weight"]
    symbols = list(task.source_dictionary.symbols)
    assert len(table) == len(symbols)
    order = [*range(4), *torch.randperm(len(symbols) - 4).add(4).tolist()]
    (tmp_path / "released").mkdir()
    lines = [f"{symbols[row]} 1" for row in order[4:]] + ["madeupword9999 0"]
    (tmp_path / "released" / "dict.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    model = {
        name: torch.cat([value[order], value[:1]]) if value.shape == table.shape else value
        for name, value in good["model"].items()
    }
    settings = {**vars(good["cfg"]["model"]), "task": "denoising", "data": str(tmp_path)}
    path = tmp_path / "released" / "model.pt"
    write_checkpoint(path, settings, model)
    flags = {"task": "long_summarization", "data": str(lab.summaries())}  # fairseq-validate's way
    for named, overrides in ((task, None), (None, flags)):
        (loaded,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(path)], overrides, named)
        torch.testing.assert_close(loaded.encoder.embed_tokens.weight.detach(), table, rtol=0, atol=0)
