"""Evaluation of language models: every byte scored once with the context it should have, by a loop over bytes."""

import importlib
import json
import math

import numpy as np
import pytest
import torch
from fairseq import options, tasks

from fairseq_poolingformer.char_lm.data import TextStream, byte_dictionary
from fairseq_poolingformer.cli.eval_lm import Stretch, cut, main, score
from fairseq_poolingformer.cli.models import load_models
from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.text.byte_symbols import NEWLINE
from preprocess.char_lm import make_folder
from tests.char_lm import naive_char_lm
from tests.char_lm.conftest import SIZE
from tests.recurrent_lm import build


@pytest.mark.parametrize("size", [1, 5, 12, 13, 40, 41])
@pytest.mark.parametrize(("context", "stride"), [(12, 4), (12, 12), (5, 1), (100, 3)])
def test_every_byte_is_scored_once_and_sequences_are_equally_long(size, context, stride):
    stretches = cut(size, context, stride)
    scored = [number for stretch in stretches for number in range(stretch.scored_from, stretch.end)]
    assert scored == list(range(size))
    assert {stretch.end - stretch.first for stretch in stretches} == {min(context, size)}
    assert all(stretch.scored_from - stretch.first >= context - stride for stretch in stretches[1:])
    assert stretches[0].first == stretches[0].scored_from == 0


def test_cut_by_hand():
    assert cut(11, 6, 2) == [Stretch(0, 0, 6), Stretch(2, 6, 8), Stretch(4, 8, 10), Stretch(5, 10, 11)]
    with pytest.raises(ValueError, match="would not be scored"):
        cut(11, 3, 4)


@torch.no_grad()
def naive(model, text, contexts):
    """Each byte alone: the probability after exactly the bytes that it should be given."""
    total = 0.0
    for number, begin in enumerate(contexts):
        inputs, targets = text.read(begin, number + 1)
        total -= float(model(inputs[None])[0][0, -1].double().log_softmax(-1)[targets[-1]])
    return total


@pytest.mark.parametrize("batch_size", [1, 3])
def test_without_memory_each_byte_has_the_context_of_its_sequence(data_folder, batch_size):
    text, model = TextStream(data_folder / "test"), build(forgetful=True)
    stretches = cut(len(text), 20, 6)
    contexts = [max(0, min(SIZE - 20, 6 * math.ceil((number + 1 - 20) / 6))) for number in range(SIZE)]
    got = score(model, text, stretches, batch_size=batch_size, block=20, device="cpu")
    assert got == pytest.approx(naive(model, text, contexts), rel=1e-5)
    assert got != pytest.approx(naive(model, text, [0] * SIZE), rel=1e-4), "the context matters"


def evaluate(checkpoint, folder, *flags):
    """The command's result."""
    output = folder.with_suffix(".json")  # beside the folder: what lies in an input is not replaced
    assert main([str(folder), "--path", str(checkpoint), "--device", "cpu", "--output", str(output), *flags]) == 0
    return json.loads(output.read_text())


@pytest.mark.parametrize("rows", [1, 4])
def test_with_memory_rows_read_before_they_are_scored(checkpoint, data_folder, rows):
    """One row, the default, is the whole text."""
    path, model = checkpoint
    text = TextStream(data_folder / "test")
    result = evaluate(path, data_folder, "--context", "20", *(["--batch-size", "4"] if rows > 1 else []))
    step = math.ceil((SIZE - 20) / rows)
    starts = [*range(0, step * (rows - 1), step), SIZE - 20 - step]
    contexts = [0] * 20 + [start for start in starts for _ in range(step)]
    expected = naive(model, text, contexts[:SIZE])
    assert result["nll"] == pytest.approx(expected, rel=1e-5)
    assert result["bpc"] == pytest.approx(expected / SIZE / math.log(2), rel=1e-5)
    assert result["scored"] == result["bytes"] == SIZE


@pytest.mark.parametrize("flags", [["--no-memory", "--stride", "6"], ["--batch-size", "2"]])
def test_shards_joined_are_the_whole(checkpoint, data_folder, tmp_path, flags, capsys):
    path, _ = checkpoint
    flags = [*flags, "--context", "20"]
    rows = [] if "--no-memory" in flags else ["--batch-size", "6"]
    whole = evaluate(path, data_folder, *flags, *rows)
    files = []
    for shard in range(3):
        files.append(tmp_path / f"{shard}.json")
        shards = ["--num-shards", "3", "--shard-id", str(shard), "--output", str(files[-1])]
        evaluate(path, data_folder, *flags, *shards)
    joined = tmp_path / "joined.json"
    assert main([str(data_folder), "--join", *map(str, files[::-1]), "--output", str(joined)]) == 0
    result = json.loads(joined.read_text())
    assert result["nll"] == pytest.approx(whole["nll"], rel=1e-6)
    assert result["scored"] == SIZE
    for wrong, message in (([files[0], files[1]], "got shards [0, 1]"), ([files[0]] * 3, "got shards [0, 0, 0]")):
        assert main([str(data_folder), "--join", *map(str, wrong)]) == 1
        assert message in capsys.readouterr().err
    other = json.loads(files[1].read_text()) | {"context": 21}
    files[1].write_text(json.dumps(other))
    assert main([str(data_folder), "--join", *map(str, files)]) == 1
    assert "context differ" in capsys.readouterr().err


def test_the_mean_of_the_spans_is_in_the_result(char_lm_checkpoint, data_folder):
    path, model = char_lm_checkpoint("gaa_lm_tiny")
    result = evaluate(path, data_folder, "--context", "20")
    assert result["average_span"] == pytest.approx(model.decoder.spans().detach().numpy().mean())
    assert result["span_ramp"] == model.decoder.spans.ramp
    path, _ = char_lm_checkpoint("longformer_lm_tiny")
    assert "average_span" not in evaluate(path, data_folder, "--context", "20")


@pytest.mark.parametrize("arch", ["longformer_lm_tiny", "transformer_xl_lm_tiny"])
def test_another_memory_than_in_training(arch, char_lm_checkpoint, data_folder):
    """As long as the text, the text is read as one."""
    text = TextStream(data_folder / "test")
    path, model = char_lm_checkpoint(arch, "--memory-length", "2")
    model.set_memory_length(0)
    result = evaluate(path, data_folder, "--context", "20", "--memory-length", "100")
    inputs, targets = text.read(0, SIZE)
    with torch.no_grad():
        expected = torch.nn.functional.cross_entropy(model(inputs[None])[0][0], targets, reduction="sum")
    assert result["nll"] == pytest.approx(float(expected), rel=1e-5)
    assert result["nll"] != pytest.approx(evaluate(path, data_folder, "--context", "20")["nll"], rel=1e-5)
    assert result["memory_length"] == (32 if "longformer" in arch else 100), "no longer than windows reach"
    forgetful = evaluate(path, data_folder, "--context", "20", "--stride", "6", "--memory-length", "0")
    assert (forgetful["memory"], forgetful["memory_length"]) == (False, 0)


def test_evaluation_as_transformer_xls(char_lm_checkpoint, tmp_path):
    """Its ``--same_length`` and ``--clamp_len``, by the equations, with blocks that are shorter than the memory."""
    path, model = char_lm_checkpoint("transformer_xl_lm_tiny", "--memory-length", "7")
    text = bytes(np.random.default_rng(0).choice(list(b"ba\nc d"), 32).tolist())
    folder = tmp_path / "data"
    (tmp_path / "text").write_bytes(text)
    make_folder([str(tmp_path / "text")], folder, sizes=(1, 1, 30))
    flags = ("--memory-length", "9", "--same-length", "--clamp-distances", "5", "--skip-newlines")
    result = evaluate(path, folder, *flags)
    parameters = {name: parameter.detach().double() for name, parameter in model.named_parameters()}
    inputs, targets = TextStream(folder / "test", NEWLINE).read(0, result["scored"])
    sees = {"sees": lambda layer, head, distance: distance < 9, "farthest": 5}
    logits = naive_char_lm.logits(parameters, inputs, heads=4, **sees)
    expected = torch.nn.functional.cross_entropy(logits, targets).item() / math.log(2)
    assert result["scored"] == len(text[2:].replace(b"\n", b"")) < 30
    assert result["bpc"] == pytest.approx(expected, abs=1e-5)
    for others in (flags[2:], flags[:2] + flags[3:], flags[:3] + flags[5:]):
        assert evaluate(path, folder, *others)["bpc"] != pytest.approx(expected, abs=1e-3)


def test_a_model_that_sees_everything_reads_no_more_than_in_training(char_lm_checkpoint, data_folder):
    full, _ = char_lm_checkpoint("transformer_lm_full_tiny")
    windows, _ = char_lm_checkpoint("longformer_lm_tiny")
    for path, flags, context in ((full, [], 7), (full, ["--context", "30"], 30), (windows, [], 32256)):
        result = evaluate(path, data_folder, *flags)
        assert (result["context"], result["stride"]) == (context, min(context, 512))
    text = TextStream(data_folder / "test")
    contexts = [min(number // 7 * 7, SIZE - 7) for number in range(SIZE)]
    expected = naive(load_models([str(full)], "cpu", "fp32")[0][0], text, contexts)
    assert evaluate(full, data_folder)["nll"] == pytest.approx(expected, rel=1e-5)


def test_a_result_has_a_file_that_can_be_written_or_nothing_is_computed(checkpoint, data_folder, tmp_path, capsys):
    command = [str(data_folder), "--path", str(checkpoint[0]), "--device", "cpu", "--context", "20", "--output"]
    for name in ("new/folder/result.json", "", "result.json/below.json"):
        (tmp_path / "result.json").touch()
        assert main([*command, str(tmp_path / name)]) == 1
        captured = capsys.readouterr()
        assert (captured.out, str((tmp_path / name).parent) in captured.err) == ("", True)
    assert main([*command, str(tmp_path / "result.json")]) == 0
    captured = capsys.readouterr()
    assert json.loads((tmp_path / "result.json").read_text()) == json.loads(captured.out)
    assert f"replaces {tmp_path}" in captured.err


def test_mistakes_are_explained(checkpoint, data_folder, tmp_path, capsys):
    path, _ = checkpoint
    for arguments, message in (
        (["--path", str(path), "--subset", "tset"], "poolingformer preprocess char_lm"),
        (["--path", str(path), "--memory-length", "5"], "has a fixed length"),
        (["--path", str(path), "--no-memory", "--context", "3", "--stride", "4"], "longer than --context"),
    ):
        assert main([str(data_folder), *arguments, "--device", "cpu"]) == 1
        assert message in capsys.readouterr().err
    for flags in (["--shard-id", "1"], ["--no-memory", "--memory-length", "5"]):
        with pytest.raises(SystemExit):
            main([str(data_folder), "--path", str(path), *flags])
    (tmp_path / "text").write_bytes(bytes(np.arange(60, dtype=np.uint8)))
    make_folder([str(tmp_path / "text")], tmp_path)
    assert evaluate(path, tmp_path, "--context", "50")["scored"] == 3, "a text shorter than the context"


@pytest.mark.parametrize("command", ["eval_lm", "generate"])
def test_fairseqs_own_commands_point_here(command, data_folder, char_lm_checkpoint, monkeypatch):
    path, _ = char_lm_checkpoint("transformer_xl_lm_tiny")
    words = [str(data_folder), "--task", "char_lm", "--path", str(path), "--cpu", "--batch-size", "2"]
    monkeypatch.setattr("sys.argv", [f"fairseq-{command}", *words, "--num-workers", "0"])
    with pytest.raises(UsageError, match="poolingformer eval-lm"):
        importlib.import_module(f"fairseq_cli.{command}").cli_main()


@pytest.mark.parametrize("arch", ["transformer_xl_lm_tiny", "adaptive_span_lm_tiny", "gaa_lm_tiny"])
def test_fairseqs_own_task_would_train_another_model(arch, tmp_path):
    byte_dictionary().save(str(tmp_path / "dict.txt"))
    words = [str(tmp_path), "--task", "language_modeling", "--arch", arch]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    with pytest.raises(UsageError, match=r"needs --task char_lm, .*; LanguageModelingTask would train another model"):
        tasks.setup_task(args).build_model(args)
