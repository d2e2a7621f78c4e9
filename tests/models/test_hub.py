"""Models in Python: Poolingformer-RoBERTa beside Hugging Face's tokenizer and model; Poolingformer-BART's summaries."""

import shutil

import pytest
import torch
from fairseq import hub_utils
from transformers import RobertaTokenizer

from fairseq_poolingformer.models import PoolingformerBART, PoolingformerRoberta
from tests.models import tiny_huggingface
from tests.weights.conftest import run

TEXT = "the thing in there is that thing, and ever the other thing there, éé"
WIDE = {"window_size": "64", "pooled_layers": "none"}


def converted(path, model_type, **changes):
    source = tiny_huggingface.folder(path / "hf", model_type, **changes)
    assert run("to-fairseq", source, path / "fairseq", "--arch", f"poolingformer_{model_type}_base") == 0
    return source, path / "fairseq"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return converted(tmp_path_factory.mktemp("hub"), "roberta", max_position_embeddings=102)  # 100 positions


@pytest.fixture(scope="module")
def theirs(folders):
    tokenizer = RobertaTokenizer.from_pretrained(folders[0])
    return tiny_huggingface.MODELS["roberta"].from_pretrained(folders[0]).eval(), tokenizer


def load(folders, **overrides):
    return PoolingformerRoberta.from_pretrained(str(folders[1]), **{**WIDE, **overrides}).eval()


def test_texts_and_pairs_are_encoded_as_hugging_face_does(folders, theirs):
    _, tokenizer = theirs
    ours = load(folders)
    assert ours.encode(TEXT).tolist() == tokenizer(TEXT)["input_ids"]
    assert ours.encode(TEXT, "in the").tolist() == tokenizer(TEXT, "in the")["input_ids"]
    assert ours.encode("the", "in", no_separator=True).tolist().count(2) == 2
    assert ours.decode(ours.encode(TEXT)) == TEXT
    assert ours.decode(ours.encode("the", "in")) == ["the", "in"]


@torch.no_grad()
def test_features_are_those_of_hugging_face(folders, theirs):
    model, _ = theirs
    ours = load(folders)
    tokens = ours.encode(TEXT)
    expected = model.roberta(tokens[None], output_hidden_states=True).hidden_states
    torch.testing.assert_close(ours.extract_features(tokens), expected[-1], atol=1e-5, rtol=0)
    states = ours.extract_features(tokens[None], return_all_hiddens=True)
    assert len(states) == 4
    torch.testing.assert_close(tuple(states), expected, atol=1e-5, rtol=0)


@torch.no_grad()
def test_long_texts_are_read_whole_or_refused(folders):
    ours = load(folders, max_positions=2000, window_size="8", pooled_layers="2", pooled_window_size="32")
    tokens = ours.encode("the thing " * 160)
    assert 512 < len(tokens) <= 2000
    features = ours.extract_features(tokens)
    assert features.shape == (1, len(tokens), 24)
    for positions, equal in (([0], True), ([0, 500], False)):
        mask = torch.zeros(1, len(tokens), dtype=torch.bool)
        mask[0, positions] = True
        difference = (ours.extract_features(tokens, global_mask=mask) - features).abs().max()
        assert difference == 0 if equal else difference > 1e-3
    with pytest.raises(ValueError, match=f"{len(tokens)} tokens, the model takes 100"):
        load(folders).extract_features(tokens)


def test_a_folder_without_dictionary_is_named(folders, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no dict\.txt: give the checkpoint.s data folder"):
        PoolingformerRoberta.from_pretrained(str(folders[1]), "model.pt", str(tmp_path))


def test_archives_are_refused_before_fairseq_unpacks_them(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(hub_utils, "from_pretrained", lambda *arguments, **named: pytest.fail("fairseq's hub"))
    for path in (
        shutil.make_archive(tmp_path / "model", "gztar", folders[1]),
        "https://example/model.tar.gz",
        "missing",
    ):
        with pytest.raises(FileNotFoundError, match=f"{path}: no such folder. .*tar -xzf"):
            PoolingformerRoberta.from_pretrained(path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.tar.gz"]


@pytest.fixture(scope="module")
def summarizer(tmp_path_factory):
    """A tiny BART of Hugging Face with 38 positions, of which <s> and </s> take two, and never in a hurry to end."""
    _, folder = converted(tmp_path_factory.mktemp("bart"), "bart")
    hub = PoolingformerBART.from_pretrained(str(folder), **WIDE).eval()
    original = hub.model.get_normalized_probs

    def without_an_end(*arguments, **named):
        lprobs = original(*arguments, **named).clone()
        lprobs[..., hub.task.target_dictionary.eos()] -= 100
        return lprobs

    hub.model.get_normalized_probs = without_an_end
    return hub


def summary_tokens(hub, monkeypatch, *arguments, **named):
    summaries = []
    with monkeypatch.context() as patch:
        patch.setattr(type(hub), "decode", lambda self, tokens: summaries.append(tokens.tolist()) or "")
        hub.summarize(*arguments, **named)
    return summaries


@pytest.mark.parametrize("length", [1, 2, 7, 12])
def test_max_length_counts_as_max_len_b_does(summarizer, monkeypatch, length):
    """<s> and what follows, then the </s> that the limit forces."""
    for tokens in summary_tokens(summarizer, monkeypatch, [TEXT, "the thing"], max_len_b=length, beam=2):
        assert (len(tokens), tokens[0], tokens.index(2)) == (length + 1, 0, length)


def test_min_len_counts_in_the_same_way(summarizer, monkeypatch):
    original = summarizer.model.get_normalized_probs

    def at_once(*arguments, **named):
        lprobs = original(*arguments, **named)
        lprobs[..., 2] += 300
        return lprobs

    monkeypatch.setattr(summarizer.model, "get_normalized_probs", at_once)
    for least in (1, 4):
        (tokens,) = summary_tokens(summarizer, monkeypatch, TEXT, min_len=least, max_len_b=10, beam=1)
        assert len(tokens) == least + 1


def test_a_string_is_one_document(summarizer):
    assert summarizer.summarize(TEXT, max_len_b=5) == summarizer.summarize([TEXT], max_len_b=5)
    assert (len(summarizer.summarize(TEXT, max_len_b=5)), summarizer.summarize([])) == (1, [])


def test_documents_that_are_cut_are_named_in_the_log(summarizer, caplog):
    assert summarizer.max_source_tokens == 38
    fitting = next(text for text in (TEXT[:size] for size in range(len(TEXT), 0, -1)) if count(summarizer, text) == 38)
    with caplog.at_level("WARNING"):
        summarizer.summarize([fitting], max_len_b=3)
        assert not caplog.records
        summarizer.summarize([fitting, "the thing " * 40], max_len_b=3)
    assert len(summarizer.encode("the thing " * 40)) == summarizer.model.max_positions()[0] == 40
    assert len(summarizer.encode(fitting)) == 40
    tokens = count(summarizer, "the thing " * 40)
    (record,) = caplog.records
    assert record.getMessage() == f"document 1: {tokens} tokens; the model reads the first 38 ({38 / tokens:.0%})"
    caplog.clear()
    summarizer.summarize("the thing " * 1000, names=["paper.txt"], max_len_b=3)
    assert caplog.messages[0].startswith(f"paper.txt: {count(summarizer, 'the thing ' * 1000):,} tokens")


def count(hub, text):
    return len(hub.bpe.encode(text).split())
