"""A folder of fairseq-preprocess, made by the recipe of fairseq's BART, beside our preprocessing of the same texts."""

import json
import re

import numpy as np
import pytest
from fairseq.data.encoders.gpt2_bpe_utils import get_encoder

from fairseq_poolingformer.cli import score
from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.models import PoolingformerBART
from fairseq_poolingformer.text.data_folder import is_of_fairseq_preprocess
from fairseq_poolingformer.text.gpt2_bpe import GPT2_FILES
from fairseq_poolingformer.text.sequences import Sequences
from tests import lab
from tests.lab import PLUGIN, here, run

TEXTS = [
    "the theory of the long document",
    "another theory attends to what it attends to",
    "the café is naïve 12 1212 !!!",
    "it is what the theory is",
]
PAIRS = {
    "train": [(text, text[:10]) for text in TEXTS],
    "valid": [(TEXTS[0], "the long")],
    "test": [(TEXTS[2], "the café")],
}
MODEL = [
    *("--task", "long_summarization", "--arch", "poolingformer_bart_tiny", "--max-source-positions", 64),
    *("--window-size", 8, "--pooled-window-size", 24, *PLUGIN, "--cpu", "--num-workers", 0),
]
TRAINING = [
    *("--optimizer", "adam", "--lr", "5e-3", "--criterion", "cross_entropy", "--batch-size", 2, "--max-update", 40),
    *("--no-epoch-checkpoints", "--validate-interval", 20),
]
GENERATION = ["--task", "long_summarization", *PLUGIN, "--cpu", "--num-workers", 0, "--batch-size", 1, "--beam", 1]


def bpe_files():
    return {name.split(".")[0]: lab.gpt2() / name for name in GPT2_FILES}


def bpe_flags():
    files = bpe_files()
    return ["--bpe", "gpt2", "--gpt2-encoder-json", files["encoder"], "--gpt2-vocab-bpe", files["vocab"]]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    return make_theirs(tmp_path_factory.mktemp("theirs"), "mmap")


def make_theirs(folder, implementation):
    encoder = get_encoder(*map(str, bpe_files().values()))  # what the recipe's multiprocessing_bpe_encoder calls
    for split, pairs in PAIRS.items():
        for side, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
            rows = [" ".join(map(str, encoder.encode(line.strip()))) for line in lines]
            (folder / f"{split}.bpe.{side}").write_text("".join(f"{row}\n" for row in rows))
    dictionary, prefixes = lab.gpt2() / "dict.txt", {"train": "trainpref", "valid": "validpref", "test": "testpref"}
    here(
        *("fairseq_cli.preprocess", "--source-lang", "source", "--target-lang", "target", "--workers", 1),
        *(word for split, flag in prefixes.items() for word in (f"--{flag}", folder / f"{split}.bpe")),
        *("--destdir", folder / "bin", "--srcdict", dictionary, "--tgtdict", dictionary),
        *("--dataset-impl", implementation),
    )
    return folder / "bin"


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ours")
    for split, pairs in PAIRS.items():
        lines = [json.dumps({"id": str(n), "text": text, "summary": short}) for n, (text, short) in enumerate(pairs)]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    splits = [word for split in PAIRS for word in (f"--{split}", folder / f"{split}.jsonl")]
    keys = ["--article-key", "text", "--summary-key", "summary", "--id-key", "id"]
    run("preprocess", "arxiv_pubmed", *splits, *keys, "--gpt2-bpe", lab.gpt2(), "--output-folder", folder / "bin")
    return folder / "bin"


@pytest.fixture(scope="module")
def trained(theirs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return folder, lab.train(theirs, *MODEL, *TRAINING, save_dir=folder)


@pytest.mark.full
def test_ids_and_losses_are_those_of_our_preprocessing(theirs, ours, trained, tmp_path):
    for split in PAIRS:
        for side in ("source", "target"):
            name = f"{split}.source-target.{side}"
            assert np.array_equal(Sequences(theirs / name).values, Sequences(ours / name).values)
    state = lab.train(ours, *MODEL, *TRAINING, save_dir=tmp_path)
    assert state["extra_state"]["val_loss"] == trained[1]["extra_state"]["val_loss"]


@pytest.mark.full
def test_generation_interactive_and_the_hub_take_fairseqs_bpe(theirs, trained, tmp_path, capsys):
    folder, _ = trained
    flags = [*GENERATION, "--path", folder / "checkpoint_last.pt", "--max-len-b", 6, "--min-len", 3]
    text = run("fairseq_cli.generate", theirs, *flags, *bpe_flags())
    assert "T-0\tthe café\n" in text
    summary = re.search(r"^D-0\t[^\t]*\t(.*)$", text, re.MULTILINE)[1]
    symbols = run("fairseq_cli.generate", theirs, *flags, "--remove-bpe")  # no tokenizer: the numbers of fairseq's BPE
    assert re.search(r"^D-0\t\S+\t[0-9 ]+$", symbols, re.MULTILINE)
    (tmp_path / "gen.out").write_text(text)
    (tmp_path / "references").write_text("the café\n")
    scores = []
    for references in ([], ["--references", str(tmp_path / "references")]):
        assert score.main([str(tmp_path / "gen.out"), "--no-perl", *references]) == 0
        scores.append(capsys.readouterr().out)
    assert "examples" in scores[0]
    assert scores[0] == scores[1]
    (tmp_path / "input").write_text(TEXTS[2] + "\n")
    lines = run("fairseq_cli.interactive", theirs, *flags, *bpe_flags(), "--input", tmp_path / "input")
    assert f"\t{summary}\n" in lines
    files = {"gpt2_encoder_json": str(bpe_files()["encoder"]), "gpt2_vocab_bpe": str(bpe_files()["vocab"])}
    load = {"checkpoint_file": "checkpoint_last.pt", "data_name_or_path": str(theirs)}
    hub = PoolingformerBART.from_pretrained(str(folder), **load, bpe="gpt2", **files).eval()
    assert hub.summarize(TEXTS[2], max_len_b=6, min_len=3, beam=1) == [summary]
    with pytest.raises(ValueError, match=r"has no tokenizer: .*bpe=\"gpt2\""):
        PoolingformerBART.from_pretrained(str(folder), **load)


@pytest.mark.full
def test_rouge_in_validation_is_refused_before_the_first_update(theirs, tmp_path):
    with pytest.raises(ValueError, match=r"--eval-rouge: .*bin has no tokenizer"):
        here("fairseq_cli.train", theirs, *MODEL, *TRAINING, "--eval-rouge", "--save-dir", tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("implementation", ["lazy", "raw"])
def test_other_formats_are_refused_in_a_sentence(tmp_path, implementation):
    folder = make_theirs(tmp_path, implementation)
    with pytest.raises((ValueError, FileNotFoundError), match=r"fairseq-preprocess (with )?--dataset-impl mmap"):
        here("fairseq_cli.train", folder, *MODEL, *TRAINING, "--save-dir", tmp_path / "run")


@pytest.mark.full
def test_masked_language_modeling_reads_what_our_preprocessing_gives_it(tmp_path):
    """Documents are of a line each; characters and words, which only a tokenizer knows, are missing.

    Without random tokens: among theirs is <|endoftext|>, which the tokenizer alone tells from a text.
    """
    encoder = get_encoder(*map(str, bpe_files().values()))
    for split, texts in (("train", TEXTS * 3), ("valid", TEXTS)):
        rows = [" ".join(map(str, encoder.encode(text))) for text in texts]
        (tmp_path / f"{split}.bpe").write_text("\n\n".join(rows) + "\n")
        (tmp_path / f"{split}.txt").write_text("\n\n".join(texts) + "\n")
    here(
        *("fairseq_cli.preprocess", "--only-source", "--workers", 1, "--srcdict", lab.gpt2() / "dict.txt"),
        *("--trainpref", tmp_path / "train.bpe", "--validpref", tmp_path / "valid.bpe"),
        *("--destdir", tmp_path / "theirs", "--dataset-impl", "mmap"),
    )
    splits = ["--input", tmp_path / "train.txt", "--valid", tmp_path / "valid.txt"]
    ours = ["--documents", "block", "--gpt2-bpe", lab.gpt2(), "--output-folder", tmp_path / "ours"]
    run("preprocess", "plain_text", *splits, *ours)
    model = ["--task", "long_masked_lm", "--arch", "poolingformer_roberta_tiny", "--criterion", "long_masked_lm"]
    model += ["--max-positions", 64, "--window-size", 8, "--pooled-window-size", 24, *PLUGIN]
    model += ["--cpu", "--num-workers", 0]
    model += ["--optimizer", "adam", "--lr", "5e-3", "--batch-size", 2, "--max-update", 4, "--random-token-prob", 0]
    states = [
        lab.train(tmp_path / name, *model, "--mask-prob", 0.4, save_dir=tmp_path / f"run_{name}")
        for name in ("theirs", "ours")
    ]
    assert ["bits_per_character" in str(state["extra_state"]["metrics"]) for state in states] == [False, True]
    assert states[0]["extra_state"]["val_loss"] == states[1]["extra_state"]["val_loss"]
    flags = [*model, "--best-checkpoint-metric", "bits_per_character", "--save-dir", tmp_path / "run"]
    with pytest.raises(UsageError, match=r"bits_per_character: with these options validation has loss, ppl"):
        here("fairseq_cli.train", tmp_path / "theirs", *flags)
    with pytest.raises(ValueError, match=r"--mask-whole-words: .*theirs has no tokenizer"):
        here("fairseq_cli.train", tmp_path / "theirs", *model, "--mask-whole-words", "--save-dir", tmp_path / "run")


@pytest.mark.parametrize("name", ["corpus.json", "tokenizer", ".parts", "train.id.txt"])
def test_a_folder_of_ours_is_never_taken_for_one_of_fairseqs(tmp_path, name):
    assert is_of_fairseq_preprocess(tmp_path)
    (tmp_path / name).write_text("")
    assert not is_of_fairseq_preprocess(tmp_path)
