"""Sampling: with memory the same text as from reading everything anew, the right distribution, bytes as they come."""

import subprocess
import sys
from collections import Counter

import pytest
import torch

from fairseq_poolingformer.cli.sample_lm import choose, main, sample
from fairseq_poolingformer.text.dictionary import EOS, FIRST_BYTE, bytes_to_ids
from tests.lab import ROOT
from tests.recurrent_lm import build

PROMPT = "näive ".encode()


@torch.no_grad()
def likeliest(model, prompt, length, context):
    """Greedy text, the last ``context`` bytes read anew for each byte."""
    ids = bytes_to_ids(prompt).astype("int64").tolist() if prompt else [EOS]
    for _ in range(length):
        logits, _ = model(torch.tensor([ids[-context:]]))
        ids.append(FIRST_BYTE + int(logits[0, -1, FIRST_BYTE:].argmax()))
    return [index - FIRST_BYTE for index in ids[-length:]]


@pytest.mark.parametrize("prompt", [PROMPT, b"", b"longer than the blocks in which it is read"])
@pytest.mark.parametrize("forgetful", [False, True])
def test_greedy_text_is_that_of_a_naive_loop(prompt, forgetful):
    model = build(forgetful=forgetful)
    got = list(sample(model, prompt, 30, context=8, temperature=0))
    assert got == likeliest(model, prompt, 30, 8 if forgetful else 1000)
    assert len(set(got)) > 3


def test_a_seed_decides_the_text():
    model = build()
    texts = [bytes(sample(model, PROMPT, 40, context=8, seed=seed)) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_choices_follow_the_distribution():
    generator = torch.Generator().manual_seed(0)
    logits = torch.tensor([0.1, 0.6, 0.3]).log()

    def shares(**settings):
        counts = Counter(choose(logits, generator=generator, **settings) for _ in range(4000))
        return [counts[number] / 4000 for number in range(3)]

    assert shares(temperature=1.0, top_k=0) == pytest.approx([0.1, 0.6, 0.3], abs=0.03)
    assert shares(temperature=1.0, top_k=2) == pytest.approx([0, 2 / 3, 1 / 3], abs=0.03)
    assert shares(temperature=0.5, top_k=0) == pytest.approx([1 / 46, 36 / 46, 9 / 46], abs=0.03)
    assert shares(temperature=0, top_k=0) == [0, 1, 0]
    assert shares(temperature=1.0, top_k=1) == [0, 1, 0]


@pytest.mark.parametrize("kind", ["checkpoint", "forgetful_checkpoint"])
def test_the_command_writes_bytes(kind, request, capfdbinary):
    path, model = request.getfixturevalue(kind)
    arguments = ["--path", str(path), "--prompt", "näive ", "--length", "20", "--temperature", "0", "--device", "cpu"]
    assert main(arguments) == 0
    out = capfdbinary.readouterr().out
    assert out == PROMPT + bytes(likeliest(model, PROMPT, 20, 7 if "forgetful" in kind else 1000)) + b"\n"


@pytest.mark.parametrize(
    ("arch", "flags", "context"),
    [
        ("longformer_lm_tiny", ["--window-size", "3,5"], 1000),
        ("longformer_lm_tiny", ["--window-size", "3,5", "--memory-length", "100"], 1000),
        ("transformer_xl_lm_tiny", ["--memory-length", "100"], 1000),
        ("transformer_lm_full_tiny", [], 7),
    ],
)
def test_windows_and_memories_read_each_byte_once(arch, flags, context, char_lm_checkpoint, capfdbinary, monkeypatch):
    path, model = char_lm_checkpoint(arch, *flags)
    expected = PROMPT + bytes(likeliest(model, PROMPT, 20, context)) + b"\n"
    read, forward = [], type(model).forward

    def recorded(self, src_tokens, memory=None):
        read.append(src_tokens.size(1))
        return forward(self, src_tokens, memory)

    monkeypatch.setattr(type(model), "forward", recorded)
    arguments = ["--path", str(path), "--prompt", "näive ", "--length", "20", "--temperature", "0", "--device", "cpu"]
    assert main(arguments) == 0
    assert capfdbinary.readouterr().out == expected
    assert read == [7] + [1 if context > 7 else 7] * 19


def test_another_memory_to_sample_with(char_lm_checkpoint, checkpoint, capfdbinary):
    path, model = char_lm_checkpoint("transformer_xl_lm_tiny", "--memory-length", "2")
    arguments = ["--prompt", "näive ", "--length", "20", "--temperature", "0", "--device", "cpu", "--memory-length"]
    for length, context in (("100", 1000), ("0", 7)):
        assert main(["--path", str(path), *arguments, length]) == 0
        assert capfdbinary.readouterr().out == PROMPT + bytes(likeliest(model, PROMPT, 20, context)) + b"\n"
    assert main(["--path", str(checkpoint[0]), *arguments, "5"]) == 1
    assert b"the memory of RecurrentLM has a fixed length" in capfdbinary.readouterr().err


def test_a_reader_that_has_had_enough_is_no_error(checkpoint):
    """As ``| head -c 20``: the pipe is closed while there is more to write."""
    command = [sys.executable, "-m", "tests.integration.with_recurrent_lm", "fairseq_poolingformer.cli.sample_lm"]
    flags = ["--path", str(checkpoint[0]), "--length", "100000", "--device", "cpu"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*command, *flags], cwd=ROOT, **pipes) as process:
        assert len(process.stdout.read(20)) == 20
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
    assert process.returncode == 0


def test_mistakes_are_explained(checkpoint, capsys):
    assert main(["--path", "nowhere.pt"]) == 1
    assert "no such checkpoint" in capsys.readouterr().err
    for flags in (["--length", "0"], ["--temperature", "-1"], ["--temperature", "nan"], ["--top-k", "-1"]):
        with pytest.raises(SystemExit):
            main(["--path", str(checkpoint[0]), *flags])
