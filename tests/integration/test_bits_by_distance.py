"""Bits per masked token by distance, beside a twin that compares words one by one."""

import json
import math
import string

import pytest
import torch
from fairseq import options, tasks

from fairseq_poolingformer.weights.files import write_checkpoint
from run_scripts.evidence import bits_by_distance
from tests.forked_python import PYTHON
from tests.lab import ROOT, run_script
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
    pairs = []
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
            occurrence = places[place]
            if places.count(occurrence) < min_word_tokens:
                continue
            distances = [
                abs(at - words[occurrence][1])
                for number, (name, at, visible) in enumerate(words)
                if number != occurrence and visible and name == words[occurrence][0] != ""
            ]
            pairs.append((min(distances, default=None), -log_probs[place, original[place]].item() / math.log(2)))
    return pairs


@pytest.fixture
def bits(trained, tmp_path):
    """Runs the command; its result."""

    def run(*flags):
        words = [trained[0] / "data", "--model", trained[0] / "model.pt", "--device", "cpu"]
        words += ["--output", tmp_path / "bits.json", *flags]
        assert bits_by_distance.main(list(map(str, words))) == 0
        return json.loads((tmp_path / "bits.json").read_text())

    return run


@pytest.mark.parametrize("tokens", [1, 2])
def test_classes_are_those_of_the_twin(trained, bits, tokens):
    """All words, and those of several tokens."""
    result = bits("--distances", *LIMITS, "--max-tokens", 150, "--min-word-tokens", tokens)
    expected = naive(*trained[1:], tokens)
    chosen = {
        "all": expected,
        "none": [pair for pair in expected if pair[0] is None],
        "<= 4": [pair for pair in expected if pair[0] is not None and pair[0] <= 4],
        "5-20": [pair for pair in expected if pair[0] is not None and 4 < pair[0] <= 20],
        "> 20": [pair for pair in expected if pair[0] is not None and pair[0] > 20],
    }
    assert [actual["distance"] for actual in result["classes"]] == list(chosen)
    for actual, pairs in zip(result["classes"], chosen.values(), strict=True):
        assert actual["tokens"] == len(pairs)
        if pairs:
            assert actual["bits_per_token"] == pytest.approx(sum(bits for _, bits in pairs) / len(pairs), rel=1e-4)
    assert min(map(len, chosen.values())) > 3 or tokens == 2
    assert 3 < len(expected) <= len(naive(*trained[1:]))


def test_blocks_of_another_length(bits):
    counts = {n: bits("--distances", 20, 40, *(["--block-tokens", n] if n else []))["classes"] for n in (None, 20, 64)}
    assert counts[None] == counts[64] != counts[20]
    farther = {length: sum(row["tokens"] for row in classes[3:]) for length, classes in counts.items()}
    assert farther[20] == 0 < farther[64]


@pytest.mark.full
def test_the_experiment_from_sources_to_its_table(tmp_path):
    """In run_scripts/evidence the start copies before it is trained, and a system continues from it."""
    for number in range(12):  # modules in packages of their own, whose names come back
        body = "".join(f"    alpha_{number}_{k % 9} = beta(alpha_{number}_{(k + 3) % 9}, {k})\n" for k in range(120))
        (tmp_path / "library" / f"package{number}").mkdir(parents=True)
        (tmp_path / "library" / f"package{number}" / "code.py").write_text(f"def work_{number}():\n{body}")
    small = ("vocabulary=300", "start_updates=1,1", "updates=1", "tokens=256", "lengths=64,128", "distances=16,48")
    arguments = (f"sources={tmp_path}/library", f"out={tmp_path}/out", f"python={PYTHON}", "seeds=1", *small)
    arguments += ("contexts=128", "positions=256", "systems=mix_192", "steps=corpus,start,train,cost,report")
    run_script("evidence/run.sh", *arguments)
    result = json.loads((tmp_path / "out" / "mix_192_1" / "bits_128.json").read_text())
    bits = [row["bits_per_token"] for row in result["classes"]]
    row = (tmp_path / "out" / "report" / "128" / "table.txt").read_text().splitlines()[1].split()
    assert row[:-2] == ["mix_192", *(f"{value:.2f}" for value in bits if value is not None)]
    assert json.loads((tmp_path / "out" / "cost.json").read_text())["mix_192"]["128"] > 0
    assert "begin training" not in run_script("evidence/run.sh", *arguments)
    first = torch.load(tmp_path / "out" / "first_absolute.pt", weights_only=False)["model"]
    layer = "encoder.sentence_encoder.layers.2.self_attn."
    assert torch.equal(first[layer + "q_proj.weight"], first[layer + "k_proj.weight"])
    assert torch.equal(first[layer + "v_proj.weight"], torch.eye(128))
