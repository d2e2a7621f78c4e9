"""The demo model that is shipped reads, and the script that trains it."""

import argparse
import functools
import importlib
import json
import math
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
import torch
from safetensors.torch import load_file

from fairseq_poolingformer.cli import summarize
from fairseq_poolingformer.models.demo_model import FOLDER, TIED, load_demo_model, write_demo_checkpoint
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess.facts import DocumentMaker, Shape, read_sentences
from tests.forked_python import PYTHON, start

SCRIPTS = Path(__file__).parents[2] / "run_scripts" / "demo_model"
PROSE = ["This is the first sentence of the prose.", "A second one says no more than the first."]


@pytest.fixture
def script(monkeypatch):
    """Imports a script of the folder."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module


def count(script, monkeypatch, capsys, tmp_path, *runs, corpora=("references",), **texts):
    """The cells of what count_facts prints of some texts, one a file, by the lines' first cell; the last wins."""
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["count_facts.py", *runs, "--references", *corpora])
    assert script("count_facts").main() == 0
    tables = [table.splitlines() for table in capsys.readouterr().out.split("\n\n")]
    rows = [[[cell.strip() for cell in line.split("  ") if cell.strip()] for line in table] for table in tables]
    return [{first: cells for first, *cells in table} for table in rows]


def test_the_corpora_of_a_system_are_one_row(script, tmp_path, monkeypatch, capsys):
    texts = {"r1": ["The A mill. It is in Bell. It opens in May."], "r2": ["The B mill. It is in Ford."]}
    texts |= {"a1": ["It opens in May."], "a2": ["It is in Ford."], "b1": ["Nothing."], "b2": ["It is in Bell."]}
    runs = ("a=a1", "b=b1", "a=a2", "b=b2")
    whole, fields = count(script, monkeypatch, capsys, tmp_path, *runs, corpora=("r1", "r2"), **texts)
    assert whole["all"] == [], "its only column"
    assert (whole["a"], whole["b"], whole["number of facts"]) == (["67"], ["0"], ["3"])
    assert fields["facts right, %"] == ["place", "leader", "builder", "month", "rooms"]
    assert fields["number of facts"] == ["2", "0", "0", "1", "0"]
    assert fields["a"] == ["50", "-", "-", "100", "-"]
    whole, _ = count(script, monkeypatch, capsys, tmp_path, "a=a1", "a=a2", corpora=("r1", "r2"), **texts)
    assert whole["corpora"] == ["50, 100"]
    with pytest.raises(SystemExit):
        count(script, monkeypatch, capsys, tmp_path, "a=a1", corpora=("r1", "r2"), **texts)


def test_intervals_are_of_documents_drawn_anew_and_differences_of_the_same_ones(script, tmp_path, monkeypatch, capsys):
    """16 documents with two facts: a has half right, all or nothing; b the same and one more fact in each other."""
    half, whole, nothing = "It is in Bell.", "It is in Bell. It opens in May.", "Nothing."
    texts = {"references": [f"The A mill. {whole}"] * 16, "a": [whole, nothing] * 8, "b": [whole, half] * 8}
    rows, _ = count(script, monkeypatch, capsys, tmp_path, "a=a", **texts)
    # binomial, 2 √(16/4) = 4 documents of 16 at each side
    assert (rows["a"], rows["95 %"]) == (["50"], ["25, 75"])
    for name, difference, interval in (("b", "+25.0", "12, 38"), ("same", "+0.0", "0, 0")):
        runs = [f"{name}={'b' if name == 'b' else 'a'}", "a=a", "--baseline", "a"]
        monkeypatch.setattr(sys, "argv", ["count_facts.py", *runs, "--references", "references"])
        assert script("count_facts").main() == 0
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert lines[1:4] == [["points", "ahead", "of", "a"], [name, difference], ["95", "%", *interval.split()]]
    with pytest.raises(SystemExit):
        count(script, monkeypatch, capsys, tmp_path, "a=a", "--baseline", "none", **texts)


FILLER = "Nothing is said here at all. " * 5
PAPERS = (
    f"These are papers on the A mill. The gossip is this. Its doors open in June. {FILLER}"
    f"The register says this. Its doors open in May. {FILLER}It lies in Bell. {FILLER}It is led by no one. "
    f"Ann Bo leads it. This is what gossip makes of it. It lies in Ford. {FILLER}The mill is led by Cy Do."
)
FACTS = "The A mill. It is in Bell. It is led by Ann Bo. It opens in May."


def test_facts_are_counted_by_the_nearer_of_the_two_heads_that_decide_about_them(script):
    count_facts = script("count_facts")
    distances, gossip = count_facts.read_papers(PAPERS, FACTS)
    # in the register the town is 39 words from its head, the leader 79; among gossip 7 and 41
    assert distances == {"month": 4, "place": 7, "leader": 41}
    assert gossip == {"month": "June", "place": "Ford", "leader": "Cy Do"}
    same, _ = count_facts.read_papers(PAPERS.replace("in Ford", "in Bell"), FACTS)
    assert same["place"] == 39, "gossip that says the same decides nothing"
    alone, _ = count_facts.read_papers(PAPERS[: PAPERS.index("This is what gossip")], FACTS)
    assert alone == {"month": 4, "place": 39, "leader": 79}
    facts = count_facts.Facts([FACTS], [PAPERS])
    (right,) = facts.right(["It is in Ford. It opens in May."])
    counts = {name: (n, of) for name, n, of in zip(facts.groups, right, facts.total[0], strict=True)}
    assert (counts["0-30"], counts["31-60"], counts["more"]) == ((1, 2), (0, 1), (0, 0))


def test_a_control_sees_the_words_before_a_fact_and_guesses_where_no_head_is_among_them(script):
    facts = script("count_facts").Facts([FACTS, FACTS], [PAPERS, "No papers at all."])
    right = {words: facts.control(words)[:, facts.groups.index("all")].tolist() for words in (3, 6, 30, 41)}
    assert right == {3: [1.5, 1.5], 6: [2.0, 1.5], 30: [2.5, 1.5], 41: [3.0, 1.5]}


def test_the_demo_model_reads_names_that_it_never_saw(script):
    maker = DocumentMaker(read_sentences(from_held_out=True), True, script("pretrain").STAGES[1][0])
    documents = [maker.make(Random(f"probe {number}")) for number in range(16)]
    summaries = load_demo_model().summarize([one.text for one in documents], max_len_b=80, batch_size=20, beam=1)
    facts = script("count_facts").Facts([one.summary for one in documents])
    shares = facts.right(summaries).sum(0) / facts.total.sum(0)
    assert shares[facts.groups.index("all")] > 0.9
    assert shares.min() > 0.8


def test_the_checkpoint_is_the_weights(tmp_path):
    write_demo_checkpoint(tmp_path / "demo_model.pt")
    with torch.serialization.safe_globals([argparse.Namespace]):
        checkpoint = torch.load(tmp_path / "demo_model.pt", weights_only=True)
    weights = load_file(FOLDER / "model.safetensors")
    assert set(checkpoint["model"]) == set(weights) | set(TIED)
    for name, value in checkpoint["model"].items():
        assert value.dtype == torch.float32
        assert torch.equal(value, weights[TIED.get(name, name)].float())
    assert (FOLDER / "model.safetensors").stat().st_size < 10e6


def test_places_are_where_the_summary_s_tokens_are_copied_from(script):
    make_pair = script("pretrain").make_pair
    tokenizer = load_tokenizer(FOLDER)
    maker = DocumentMaker(PROSE, False, Shape(words=(20, 60), fields=(5, 5), papers=(2, 3), gossip=1))
    for number in range(20):
        document = maker.make(Random(number))
        pair = make_pair(document, tokenizer)
        copies = [(source, token) for source, token in zip(pair.places, pair.target, strict=True) if source >= 0]
        assert all(pair.source[source] == token for source, token in copies)
        copied = tokenizer.decode([token for _, token in copies])
        for field in ("place", "leader", "builder"):
            assert document.facts[field] in copied
        before = tokenizer.decode(pair.source[: copies[0][0]])
        assert before.endswith(document.stated["place"].split(document.facts["place"])[0].strip())


def test_the_pointer_s_loss_is_the_cross_entropy_of_its_attention(script):
    pretrain = script("pretrain")
    _, model = pretrain.build(FOLDER)
    pointer = pretrain.Pointer(model)
    source, previous = torch.randint(4, 300, (2, 9)), torch.randint(4, 300, (2, 5))
    padding = torch.zeros(2, 9, dtype=torch.bool)
    padding[1, 6:] = True
    source[padding] = 1
    places = torch.tensor([[-1, 2, 8, -1, 0], [5, -1, -1, 1, -1]])
    attention = model.decoder.layers[-1].encoder_attn
    inputs = {}
    for name in ("q_proj", "k_proj"):
        hook = functools.partial(lambda name, module, args, output: inputs.update({name: args[0]}), name)
        getattr(attention, name).register_forward_hook(hook)
    with torch.no_grad():
        model(source, None, previous)
        loss = pointer.loss(padding, places)
        query, key = (getattr(attention, name)(inputs[name]) for name in ("q_proj", "k_proj"))
    total = []
    heads, dim = attention.num_heads, attention.head_dim
    for row in range(2):
        for head in range(heads):
            channels = slice(head * dim, (head + 1) * dim)
            scores = query[:, row, channels].double() @ key[:, row, channels].double().T / math.sqrt(dim)
            scores = scores[:, : 9 - int(padding[row].sum())]
            total += [-scores[t].log_softmax(-1)[place] for t, place in enumerate(places[row].tolist()) if place >= 0]
    assert loss == pytest.approx(float(sum(total) / len(total)), rel=1e-5)
    with torch.no_grad():
        model(source, None, previous)
        assert pointer.loss(padding, torch.full_like(places, -1)) == 0


def test_summarize_asks_for_a_checkpoint_or_the_demo(tmp_path, capsys):
    for arguments, message in (
        ([], "name a trained model with --model, or give --demo"),
        (["--demo", "--data-folder", "x"], "--data-folder goes with --model"),
        (["--demo", "--checkpoint", "x"], "not allowed with"),
    ):
        with pytest.raises(SystemExit, match="2"):
            summarize.main([*arguments, "README.md"])
        assert message in capsys.readouterr().err


def test_the_demo_summarizes_with_the_reader(tmp_path, capsys):
    document = "These are papers on the Tulmon mill.\nThis is out of the register. It lies in Kelwick. It opens in May."
    (tmp_path / "mill.txt").write_text(document)
    assert summarize.main(["--demo", str(tmp_path / "mill.txt"), "--lenpen", "1"]) == 0
    output = capsys.readouterr()
    assert output.out.startswith("The Tulmon mill. It is in Kelwick.")
    assert "the small demo model, which comes with the package" in output.err


@pytest.mark.full
def test_pretraining_resumes(tmp_path):
    def pretrain(*flags):
        start()
        command = [PYTHON, SCRIPTS / "pretrain.py", "--output-folder", tmp_path, "--threads", "1"]
        sizes = ("--rounds", "2", "--documents", "16")
        done = subprocess.run([*command, *sizes, *flags], capture_output=True, text=True, timeout=1200)
        assert done.returncode == 0, done.stderr
        return [line for line in done.stdout.splitlines() if line.startswith("rounds")]

    first = pretrain("--minutes", "0")
    assert len(first) == 1
    second = pretrain()
    assert [line.split()[1] for line in second] == ["2"]
    assert int(second[0].split()[3]) > int(first[0].split()[3])
    assert json.loads((tmp_path / "config.json").read_text())["arch"] == "poolingformer_demo"
    assert (tmp_path / "model.safetensors").is_file()
