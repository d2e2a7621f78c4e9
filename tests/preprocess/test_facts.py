import json
import re
from random import Random

import pytest

from fairseq_poolingformer.tasks.summarization import PAIRS
from fairseq_poolingformer.text.data_folder import DataFolder
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess import facts
from preprocess.facts import FIELDS, GOSSIP, REGISTER, DocumentMaker, Shape, held_out, read_prose
from tests.preprocess.conftest import convert, refused

PROSE = [f"This is sentence {word} of the prose." for word in ("alpha", "beta", "gamma", "delta", "epsilon")]


def documents(shape=Shape(words=(40, 200)), names_held_out=False, count=30):  # noqa: B008 - frozen
    maker = DocumentMaker(PROSE, names_held_out, shape)
    return [maker.make(Random(number)) for number in range(count)]


def papers(document, headings):
    """The text of all papers that open with one of the headings."""
    return " ".join(paper for paper in document.text.split("\n")[1:] if paper.startswith(headings))


def test_the_register_states_every_fact_and_gossip_others():
    for document in documents():
        assert tuple(document.facts) == FIELDS
        register, gossip = papers(document, REGISTER), papers(document, GOSSIP)
        for value in document.facts.values():
            assert value in register
            assert value in document.summary
        unique = [document.facts[field] for field in ("place", "leader", "builder")]
        assert not any(value in gossip for value in unique)
        names = re.findall(r"[A-Z][a-z]+ [A-Z][a-z]+", gossip)
        assert len(names) >= 2, "a false leader and a false builder"
        name, kind = re.match(r"The (\w+) (\w+)\.", document.summary).groups()
        assert document.text.startswith(f"These are papers on the {name} {kind}.")


def test_shapes_are_kept():
    for document in documents(Shape(words=(0, 30), fields=(1, 2), papers=(3, 3), gossip=0)):
        assert 1 <= len(document.facts) <= 2
        assert len(document.text.split("\n")) == 1 + 3
        assert papers(document, GOSSIP) == ""
        assert document.text.count("This is sentence") <= 5


def test_facts_lie_anywhere_in_their_papers():
    texts = [document.text for document in documents(Shape(words=(200, 300), papers=(2, 2)), count=20)]
    assert any(re.search(r"prose\. [^.]*prose\.$", text) for text in texts)
    distances = [text.index(fact) for text in texts for fact in re.findall(r"(?:is led by|leads it|At its head)", text)]
    assert max(distances) > 2 * min(distances)


def names_of(documents):
    texts = [" ".join([x.summary.split(".")[0].split()[1], *(x.facts[f] for f in FIELDS[:3])]) for x in documents]
    return set(" ".join(texts).split())


def test_names_held_out_are_in_no_other_document():
    trained, tested = (names_of(documents(names_held_out=held)) for held in (False, True))
    assert not trained & tested
    assert not any(map(held_out, trained))
    assert all(map(held_out, tested))


def test_prose_is_sentences_of_docstrings(tmp_path):
    path = tmp_path / "some.py"
    path.write_text(
        '"""Do the things that must be done. Not x=1 or `code` here.\n\n    Too short.\n"""\n'
        'def f():\n    """Do the things that must be done. Say what the caller wants\n    to hear."""\n'
    )
    broken = tmp_path / "broken.py"
    broken.write_text("def (:\n")
    twice = "Do the things that must be done."
    assert list(read_prose(path)) == [twice, twice, "Say what the caller wants to hear."]
    assert list(read_prose(broken)) == []


def listed(sentences, monkeypatch, tmp_path):
    """Makes a list of sentences, three for training and one that is held out, the prose."""
    digests = [facts.digest(sentence)[: facts.DIGITS] for sentence in sentences]
    (tmp_path / "prose.txt").write_text("\n".join([*digests[:3], "", *digests[3:], ""]))
    monkeypatch.setattr(facts, "PROSE", tmp_path / "prose.txt")


def library(sentences, monkeypatch):
    by_digest = {facts.digest(sentence)[: facts.DIGITS]: sentence for sentence in sentences}
    monkeypatch.setattr(facts, "_library", lambda: by_digest)


def test_prose_is_in_the_order_of_the_list_whatever_else_the_library_has(monkeypatch, tmp_path, caplog):
    listed([*PROSE[2::-1], PROSE[3]], monkeypatch, tmp_path)
    library(PROSE, monkeypatch)
    assert facts.read_sentences(from_held_out=False) == PROSE[2::-1]
    assert facts.read_sentences(from_held_out=True) == PROSE[3:4]
    assert caplog.messages == []


def test_the_next_sentence_stands_in_for_one_that_a_library_lacks_and_other_documents_stay(
    monkeypatch, tmp_path, caplog
):
    shape, documents = Shape(words=(5, 20)), []
    for missing in (None, PROSE[1]):
        listed(PROSE[:4], monkeypatch, tmp_path)
        library([sentence for sentence in PROSE if sentence != missing], monkeypatch)
        maker = DocumentMaker(facts.read_sentences(from_held_out=False), False, shape)
        documents.append([maker.make(Random(number)) for number in range(30)])
    assert maker.sentences == [PROSE[0], PROSE[2], PROSE[2]]
    assert "1 of the 3 sentences of prose are not in" in caplog.text
    same = [whole == lacking for whole, lacking in zip(*documents, strict=True)]
    assert same == [PROSE[1] not in whole.text for whole in documents[0]]
    assert 0 < sum(same) < 30
    library([PROSE[0], PROSE[1]], monkeypatch)
    assert facts.read_sentences(from_held_out=False) == [PROSE[0], PROSE[1], PROSE[0]], "the first follows the last"


def test_a_library_without_sources_is_refused(monkeypatch, tmp_path):
    listed(PROSE[:4], monkeypatch, tmp_path)
    library(PROSE[:1], monkeypatch)
    with pytest.raises(ValueError, match="too few sources with docstrings"):
        facts.read_sentences(from_held_out=False)


def test_the_list_has_digests_alone_and_none_on_both_sides():
    sides = [side.split() for side in facts.PROSE.read_text().split("\n\n")]
    assert [len(side) for side in sides] == [5042, 396]
    assert all(re.fullmatch("[0-9a-f]{8}", digest) for side in sides for digest in side)
    assert len({digest for side in sides for digest in side}) == 5042 + 396
    assert facts.PROSE.stat().st_size < 60_000


@pytest.mark.full
def test_this_python_has_the_list_s_sentences():
    """Releases of 3.10 to 3.13 that are not yet made may lack a few."""
    train, rest = facts.read_sentences(from_held_out=False), facts.read_sentences(from_held_out=True)
    assert len(set(train)) > 0.99 * 5042
    assert len(set(rest)) > 0.99 * 396
    assert not set(train) & set(rest)


def make_folder(folder, *flags):
    counts = ("--words", 20, 40, "--train", 60, "--valid", 2, "--test", 3)
    return convert(facts, folder, *counts, *flags, tokenizer=["--sentencepiece-train", 400])


def test_data_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(facts, "read_sentences", lambda is_held_out: PROSE)
    assert make_folder(tmp_path) == 0
    train, test = ((tmp_path / f"{split}.summary.txt").read_text().splitlines() for split in ("train", "test"))
    assert (len(train), len(test)) == (60, 3)
    assert all(re.match(r"The \w+ \w+\. It is in \w+\. It is led by", line) for line in test)
    assert all(held_out(line.split()[1]) for line in test)
    assert not any(held_out(line.split()[1]) for line in train)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.decode(tokenizer.encode(test[0])) == test[0]


def test_a_corpus_of_fewer_papers_says_so_and_others_are_as_before_the_flag(monkeypatch, tmp_path):
    monkeypatch.setattr(facts, "read_sentences", lambda is_held_out: PROSE)
    assert make_folder(tmp_path / "few", "--papers", 2, 3) == make_folder(tmp_path / "many", "--papers", 6, 14) == 0
    settings = [json.loads((tmp_path / name / "corpus.json").read_text())["settings"] for name in ("few", "many")]
    assert set(settings[1]) == {"counts", "words", "seed"}
    assert settings[0] == settings[1] | {"papers": [2, 3]}
    tokenizer = load_tokenizer(tmp_path / "few")
    few, many = (DataFolder(tmp_path / name, PAIRS).sequences("test", PAIRS.ids[0]) for name in ("few", "many"))
    heads = re.compile("|".join(map(re.escape, REGISTER + GOSSIP)))
    assert all(2 <= len(heads.findall(tokenizer.decode(few[number]))) <= 3 for number in range(3))
    assert max(map(len, few)) < min(map(len, many))


@pytest.mark.parametrize("flags", [("--papers", 1, 3), ("--papers", 4, 3), ("--words", 40, 20)])
def test_a_range_that_is_none_is_refused(flags, tmp_path, capsys):
    assert f"{flags[0]} {flags[1]} {flags[2]}: MIN must be" in refused(capsys, facts, tmp_path, *flags)
