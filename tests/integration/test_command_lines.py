"""fairseq's command lines over the plugin as a user types them, from training to summaries of text files."""

import json
import re

import pytest

from tests.lab import PLUGIN, SUMMARIES, run

MODEL = [
    *("--task", "long_summarization", "--arch", "poolingformer_bart_tiny", "--max-source-positions", 128),
    *("--window-size", 8, "--pooled-window-size", 24),
]
TRAINING = [
    *("--optimizer", "adam", "--lr", "2e-3", "--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1"),
    *("--batch-size", 6, "--num-workers", 0, "--log-format", "json", "--cpu", "--no-epoch-checkpoints"),
]


@pytest.fixture(scope="module")
def trained(data_folder, tmp_path_factory):
    """The folder of a checkpoint trained for two short epochs with ROUGE in validation, and the log."""
    folder = tmp_path_factory.mktemp("run")
    rouge = ["--eval-rouge", "--eval-rouge-args", '{"beam": 2, "max_len_b": 10}']
    best = ["--best-checkpoint-metric", "rougeLsum", "--maximize-best-checkpoint-metric"]
    log = run(
        *("fairseq_cli.train", data_folder, *PLUGIN, *MODEL, *TRAINING, *rouge, *best),
        *("--save-dir", folder, "--max-epoch", 2, "--checkpoint-activations", "--attention-dropout", "0.1"),
        cwd=folder,
    )
    return folder, log


def stats(log, name):
    lines = [line for line in log.splitlines() if f"| {name} |" in line and "{" in line]
    return [json.loads(line[line.index("{") :]) for line in lines]


@pytest.mark.full
def test_training_reports_rouge_and_keeps_the_best_checkpoint(trained):
    folder, log = trained
    valid = stats(log, "valid")
    assert len(valid) == 2
    assert {"valid_rouge1", "valid_rouge2", "valid_rougeL", "valid_rougeLsum"} <= valid[0].keys()
    assert (folder / "checkpoint_best.pt").is_file()
    assert "attention backend on cpu: block" in log
    train = stats(log, "train")
    assert float(train[1]["train_loss"]) < float(train[0]["train_loss"])
    assert train[-1]["train_num_updates"] == "14", "40 documents at batch size 6: seven batches an epoch, none dropped"


@pytest.mark.full
def test_validate_gives_the_loss_of_training(trained, data_folder):
    folder, log = trained
    output = run(
        *("fairseq_cli.validate", data_folder, *SUMMARIES, "--cpu", "--num-workers", 0, "--log-format", "json"),
        *("--path", folder / "checkpoint_last.pt", "--valid-subset", "valid", "--batch-size", 2),
    )
    loss = float(re.search(r'"valid_loss": "([\d.]+)"', output)[1])
    assert loss == pytest.approx(float(stats(log, "valid")[-1]["valid_loss"]), abs=0.011)


@pytest.fixture(scope="module")
def generated(trained, data_folder):
    folder, _ = trained
    output = run(
        *("fairseq_cli.generate", data_folder, *PLUGIN, "--task", "long_summarization", "--gen-subset", "test"),
        *("--path", folder / "checkpoint_best.pt", "--beam", 5, "--lenpen", 2, "--no-repeat-ngram-size", 0),
        *("--max-len-b", 12, "--batch-size", 12, "--scoring", "rouge", "--cpu", "--num-workers", 0),
        cwd=folder,
    )
    (folder / "gen.out").write_text(output, encoding="utf-8")
    return folder, output


@pytest.mark.full
def test_generate_gives_as_many_hypotheses_as_inputs_and_rouge(generated, data_folder):
    """Twelve documents in one batch of twelve, where fairseq would have dropped four."""
    _, output = generated
    hypotheses = re.findall(r"^D-(\d+)\t", output, re.MULTILINE)
    assert sorted(map(int, hypotheses)) == list(range(12))
    assert "95% bootstrap interval" in output
    for name in ("ROUGE-1", "ROUGE-2", "ROUGE-L", "ROUGE-Lsum"):
        assert re.search(rf"^{name} .*F1 +\d", output, re.MULTILINE)
    references = (data_folder / "test.summary.txt").read_text(encoding="utf-8").splitlines()
    targets = dict(re.findall(r"^T-(\d+)\t(.*)$", output, re.MULTILINE))
    assert [targets[str(n)] for n in range(12)] == references


@pytest.mark.full
def test_summarize_says_what_it_cuts_and_agrees_with_generate(generated, tmp_path):
    folder, output = generated
    documents = dict(re.findall(r"^S-(\d+)\t(.*)$", output, re.MULTILINE))
    hypotheses = dict(re.findall(r"^D-(\d+)\t[^\t]*\t(.*)$", output, re.MULTILINE))
    lengths = {n: len(text) for n, text in documents.items()}
    short = min(documents, key=lengths.get)
    (tmp_path / "short.txt").write_text(documents[short], encoding="utf-8")
    (tmp_path / "long.txt").write_text(" ".join(documents.values()), encoding="utf-8")
    files = [tmp_path / "short.txt", tmp_path / "long.txt"]
    arguments = ["--checkpoint", folder / "checkpoint_best.pt", "--max-len-b", 12, "--device", "cpu"]
    result = run("fairseq_poolingformer.cli.main", "summarize", *files, *arguments)
    assert re.search(r"long\.txt: [\d,]+ tokens; the model reads the first 126", result)
    assert "short.txt: " not in result
    assert f"short.txt\t{hypotheses[short]}\n" in result


@pytest.mark.full
def test_interactive_takes_raw_text(trained, data_folder, tmp_path):
    folder, _ = trained
    (tmp_path / "input.txt").write_text("die Größe der Schlüssel\n長い 文書\n", encoding="utf-8")
    output = run(
        *("fairseq_cli.interactive", data_folder, *PLUGIN, "--task", "long_summarization", "--cpu"),
        *("--path", folder / "checkpoint_best.pt", "--beam", 2, "--max-len-b", 8, "--input", tmp_path / "input.txt"),
        *("--buffer-size", 2, "--batch-size", 2),
        cwd=tmp_path,
    )
    assert len(re.findall(r"^D-[01]\t", output, re.MULTILINE)) == 2
    assert re.search(r"^S-0\t<s> ▁die", output, re.MULTILINE) or re.search(r"^S-0\t▁die", output, re.MULTILINE)
    assert not re.search(r"^D-[01]\t.*▁", output, re.MULTILINE), "detokenized by the data folder's own tokenizer"
