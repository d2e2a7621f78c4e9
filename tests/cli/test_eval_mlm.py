"""Bits per masked token by distance: beside the criterion, and beside a twin that compares words one by one."""

import json
import math
import string

import pytest
import torch
from fairseq import options, tasks

from fairseq_poolingformer.cli import eval_mlm
from fairseq_poolingformer.tasks.masked_lm.task import LongMaskedLMCriterion
from fairseq_poolingformer.weights.files import write_checkpoint
from tests.lab import ROOT
from tests.tasks.masked_lm.mlm_folder import random_texts, write_folder

LIMITS = [4, 20]
AROUND = string.punctuation + string.whitespace


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A data folder, and the path, the model and the task of a checkpoint."""
    folder = tmp_path_factory.mktemp("mlm")
    tokenizer = write_folder(folder / "data", {"train": random_texts(2, 9), "valid": random_texts(12, 90, seed=1)})
    arguments = [
        *(str(folder / "data"), "--user-dir", str(ROOT / "fairseq_poolingformer"), "--cpu"),
        *("--task", "long_masked_lm", "--criterion", "long_masked_lm", "--arch", "poolingformer_roberta_tiny"),
        *("--max-positions", "64", "--mask-prob", "0.3"),
    ]
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    task = tasks.setup_task(args)
    torch.manual_seed(0)
    model = task.build_model(args).eval()
    for parameter in model.parameters():
        parameter.data *= 3  # so that losses differ from token to token
    write_checkpoint(folder / "model.pt", vars(args), model.state_dict())
    task.load_dataset("valid")
    return folder, model, task, tokenizer.symbol_texts()


def naive(model, task, texts, min_word_tokens=1):
    """(distance or None, bits) of every masked token of words that have so many tokens."""
    found = []
    for item in map(task.dataset("valid").__getitem__, range(len(task.dataset("valid")))):
        with torch.no_grad():
            logits, _ = model(item["tokens"][None])
        log_probs = logits[0].double().log_softmax(-1)
        masked = item["target"] != task.dictionary.pad()
        original = torch.where(masked, item["target"], item["tokens"]).tolist()
        words, places = [], []
        for place, token in enumerate(original):
            text = texts[token].decode("latin-1") if token < len(texts) else ""  # bytes as characters
            if not words or text[:1] in ("", " ", "\n") or words[-1][0] == "":
                words.append([text, place, True])
            else:
                words[-1][0] += text
            words[-1][2] &= item["tokens"][place].item() == token
            places.append(len(words) - 1)
        words = [(name.strip(AROUND), at, visible) for name, at, visible in words]
        for place in torch.nonzero(masked).flatten().tolist():
            own = places[place]
            if places.count(own) < min_word_tokens:
                continue
            distances = [
                abs(at - words[own][1])
                for number, (name, at, visible) in enumerate(words)
                if number != own and visible and name == words[own][0] != ""
            ]
            found.append((min(distances, default=None), -log_probs[place, original[place]].item() / math.log(2)))
    return found


def test_classes_are_those_of_the_twin(trained, tmp_path, capsys):
    folder, model, task, texts = trained
    output, figure = tmp_path / "bits.json", tmp_path / "bits.svg"
    arguments = [str(folder / "data"), "--path", str(folder / "model.pt"), "--distances", *map(str, LIMITS)]
    arguments += ["--max-tokens", "150", "--device", "cpu", "--output", str(output), "--plot", str(figure)]
    assert eval_mlm.main(arguments) == 0
    (result,) = json.loads(output.read_text())
    expected = naive(model, task, texts)
    chosen = {
        "all": expected,
        "none": [pair for pair in expected if pair[0] is None],
        "<= 4": [pair for pair in expected if pair[0] is not None and pair[0] <= 4],
        "5-20": [pair for pair in expected if pair[0] is not None and 4 < pair[0] <= 20],
        "> 20": [pair for pair in expected if pair[0] is not None and pair[0] > 20],
    }
    assert [actual["distance"] for actual in result["classes"]] == list(chosen)
    for actual, pairs in zip(result["classes"], chosen.values(), strict=True):
        assert actual["tokens"] == len(pairs) > 3
        assert actual["bits_per_token"] == pytest.approx(sum(bits for _, bits in pairs) / len(pairs), rel=1e-4)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split() == ["distance", "in", "tokens", "all", "none", "<=", "4", "5-20", ">", "20"]
    assert printed[2].split()[1:] == [f"{actual['bits_per_token']:.3f}" for actual in result["classes"]]
    assert sum(actual["tokens"] for actual in result["octaves"][1:]) == len(expected)
    assert figure.read_text().startswith("<?xml")
    criterion = LongMaskedLMCriterion(task)
    samples = [task.dataset("valid").collater([task.dataset("valid")[n]]) for n in range(len(task.dataset("valid")))]
    losses = [criterion(model, sample)[2] for sample in samples]
    bits = sum(float(log["loss"]) for log in losses) / math.log(2) / sum(log["sample_size"] for log in losses)
    assert result["classes"][0]["bits_per_token"] == pytest.approx(bits, rel=1e-4)


def test_names_alone(trained, tmp_path):
    """Only words of several tokens count."""
    folder, model, task, texts = trained
    arguments = [str(folder / "data"), "--path", str(folder / "model.pt"), "--device", "cpu", "--min-word-tokens", "2"]
    assert eval_mlm.main([*arguments, "--distances", *map(str, LIMITS), "--output", str(tmp_path / "bits.json")]) == 0
    actual = {c["distance"]: c for c in json.loads((tmp_path / "bits.json").read_text())[0]["classes"]}
    expected = naive(model, task, texts, 2)
    assert 3 < len(expected) < len(naive(model, task, texts))
    assert actual["all"]["tokens"] == len(expected)
    assert actual["all"]["bits_per_token"] == pytest.approx(sum(b for _, b in expected) / len(expected), rel=1e-4)
    assert actual["none"]["tokens"] == sum(distance is None for distance, _ in expected)


def test_blocks_of_another_length(trained, tmp_path):
    """Those of a model with so many positions; more than the model takes are refused."""
    folder, _, _, _ = trained
    counts = {}
    for length in (None, 20, 64):
        arguments = [str(folder / "data"), "--path", str(folder / "model.pt"), "--device", "cpu"]
        arguments += ["--output", str(tmp_path / "bits.json"), *(["--block-tokens", str(length)] if length else [])]
        assert eval_mlm.main([*arguments, "--distances", "20", "40"]) == 0
        (result,) = json.loads((tmp_path / "bits.json").read_text())
        counts[length] = result["classes"]
    assert counts[None] == counts[64] != counts[20]
    farther = {length: sum(found["tokens"] for found in classes[3:]) for length, classes in counts.items()}
    assert farther[20] == 0 < farther[64]


def test_mistakes_get_a_sentence(trained, capsys):
    data = str(trained[0] / "data")
    assert eval_mlm.main([data, "--path", str(trained[0] / "model.pt"), "--subset", "test"]) == 1
    assert "no split 'test'" in capsys.readouterr().err
    assert eval_mlm.main([data, "--path", str(trained[0] / "model.pt"), "--block-tokens", "65"]) == 1
    assert "--block-tokens 65: " in (said := capsys.readouterr().err)
    assert "model.pt takes at most 64 tokens" in said
    for limits in (["5", "4"], ["3", "3"]):
        with pytest.raises(SystemExit):
            eval_mlm.main([data, "--path", "x", "--distances", *limits])
        assert f"--distances must ascend, got {' '.join(limits)}" in capsys.readouterr().err
