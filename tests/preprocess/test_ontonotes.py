import pytest

from fairseq_poolingformer.tasks.coreference.data import CoreferenceSplit, genre_of, parse_document, split_documents
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from preprocess import ontonotes
from tests.preprocess.conftest import convert, rejects
from tests.preprocess.qa_folder import FIXTURES

TRAIN, VALID = (FIXTURES.parent / "ontonotes" / f"{split}.v4_gold_conll" for split in ("train", "valid"))


@pytest.fixture(params=["gpt2", "sentencepiece"])
def tokenizer(request, gpt2_folder):
    return ["--gpt2-bpe", gpt2_folder] if request.param == "gpt2" else ["--sentencepiece-train", "330"]


def read(path):
    with open(path, encoding="utf-8") as lines:
        return [parse_document(raw) for raw in split_documents(lines)]


def test_words_pieces_speakers_and_mentions_are_those_of_the_file(tokenizer, tmp_path, capsys):
    assert convert(ontonotes, tmp_path / "data", "--train", TRAIN, "--valid", VALID, tokenizer=tokenizer) == 0
    assert "4" in capsys.readouterr().out
    pieces_of = load_tokenizer(tmp_path / "data")
    documents = read(TRAIN)
    split = CoreferenceSplit.open(tmp_path / "data", "train")
    names = CoreferenceSplit.lines(tmp_path / "data", "train")
    assert names == [document.name for document in documents]
    assert [genre_of(name) for name in names] == [1, 1, 4, 7]
    words = (tmp_path / "data" / "train.words.txt").read_text(encoding="utf-8").splitlines()
    for number, document in enumerate(documents):
        assert words[number].split(" ") == list(document.words)
        assert split.sentence[number].tolist() == list(document.sentences)
        speakers = list(dict.fromkeys(document.speakers))
        assert [speakers[speaker] for speaker in split.speaker[number]] == list(document.speakers)
        start = 0
        for word, size in zip(document.words, split.word[number].tolist(), strict=True):
            text = pieces_of.decode(split.document[number][start : start + size]).strip()
            assert text == {"-LRB-": "(", "-RRB-": ")", "/.": "."}.get(word, word)
            start += size
        rows = split.mentions(number).tolist()
        clusters = [[(a, b) for a, b, cluster in rows if cluster == entity] for entity in range(1, 20)]
        assert [cluster for cluster in clusters if cluster] == [list(cluster) for cluster in document.clusters]


BAD = """\
#begin document (nw/a); part 000
nw/a 0 0 Anna NNP * - - - - * (1
nw/a 0 1 left VBD * - - - - * -
#end document
#begin document (nw/b); part 000
nw/b 0 0 Anna NNP * -
#end document
lost 0 0 line NN * - - - - * -
#begin document (nw/c); part 000
nw/c 0 0 [WORD] NN * - - - - * -
#end document
#begin document (nw/d); part 000
nw/d 0 0 caf\udce9 NN * - - - - * -
#end document
#begin document (nw/e); part 000
nw/e 0 0 Anna NNP * - - - - * (1)
#begin document (nw/f); part 000
"""


def test_bad_documents_are_named_and_the_good_ones_kept(tmp_path):
    path = tmp_path / "mixed_gold_conll"
    path.write_bytes(BAD.encode("utf-8", "surrogateescape") + TRAIN.read_bytes() + TRAIN.read_bytes()[:300])
    assert convert(ontonotes, tmp_path / "data", "--train", path) != 0  # more bad ones than --max-reject-fraction
    assert convert(ontonotes, tmp_path / "data", "--train", path, "--max-reject-fraction", "1") == 0
    assert len(CoreferenceSplit.lines(tmp_path / "data", "train")) == 4
    bad = rejects(tmp_path / "data")
    assert {reject["file"] for reject in bad} == {str(path)}
    expected = [
        (1, "unbalanced bracket: (1 of line 2 is never closed"),
        (5, "too few columns: line 6 has 7"),
        (8, "text outside of a document: line 8"),
        (9, "words are hidden: [WORD]"),
        (12, "not UTF-8: line 13"),
        (15, "no end: the document that begins in line 15"),
        (17, "no end: the document that begins in line 17"),
        (18 + TRAIN.read_bytes().count(b"\n"), "no end"),
    ]
    assert [reject["line"] for reject in bad] == [line for line, _ in expected]
    for reject, (_, reason) in zip(bad, expected, strict=True):
        assert reject["reason"].startswith(reason), reject


def test_mentions_that_cannot_be_learned_are_counted(tmp_path, capsys):
    wide = ["(1", *["-"] * 29, "1)"]
    cells = [*wide, "", "(2", "(3", "2)", "3)", "(4|(5", "", "4)|5)"]
    nested = ["", "(6|(7", "7)", "6)", "(8", "(9", "9)|8)"]
    lines = [f"nw/a 0 0 word NN * - - - - * {cell}" if cell else "" for cell in cells + nested]
    path = tmp_path / "odd_gold_conll"
    path.write_text("\n".join(["#begin document (nw/a); part 000", *lines, "#end document\n"]))
    assert convert(ontonotes, tmp_path / "data", "--train", path) == 0
    printed = capsys.readouterr().out
    notes = {ontonotes.WIDE: 1, ontonotes.TWO_SENTENCES: 2, ontonotes.CROSSING: 2, ontonotes.TWO_ENTITIES: 1}
    assert all(f"{count} × {note}" in printed for note, count in notes.items())
    assert len(CoreferenceSplit.open(tmp_path / "data", "train").mentions(0)) == 9  # the folder has all of them


def test_line_ends_and_a_byte_order_mark_change_nothing(tmp_path):
    path = tmp_path / "windows_gold_conll"
    path.write_bytes(b"\xef\xbb\xbf" + TRAIN.read_bytes().replace(b"\n", b"\r\n"))
    parsed, plain = ([ontonotes.parse(record, True) for record in ontonotes.read_documents([f])] for f in (path, TRAIN))
    assert parsed == plain
    for file in (path, TRAIN):
        assert sum(record.progress for record in ontonotes.read_documents([file])) == file.stat().st_size


def test_test_files_need_no_annotations(tmp_path):
    path = tmp_path / "test_conll"
    path.write_text("#begin document (nw/a); part 000\nnw/a 0 0 word NN * - - - - * (1\n#end document\n")
    assert convert(ontonotes, tmp_path / "data", "--test", path) == 0
    assert CoreferenceSplit.open(tmp_path / "data", "test").mentions(0).tolist() == []
