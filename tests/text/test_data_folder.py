import json
import os

import numpy as np
import pytest

from fairseq_poolingformer.tasks.masked_lm import DOCUMENTS, DOCUMENTS_WITH_TEXT
from fairseq_poolingformer.tasks.question_answering.data import QuestionAnsweringSplit
from fairseq_poolingformer.tasks.summarization import PAIRS
from fairseq_poolingformer.text.data_folder import BYTES, DataFolder, check_file, tokenizer_config
from fairseq_poolingformer.text.sequences import SequencesWriter

QUESTIONS = QuestionAnsweringSplit.layout


def write_array(folder, split, array=""):
    with SequencesWriter(folder.array_path(split, array), np.uint16) as writer:
        writer.append(np.array([5, 6, 2]))


def test_fairseqs_names_and_sequences_that_come_back(tmp_path):
    pairs, documents, questions = (DataFolder(tmp_path, layout) for layout in (PAIRS, DOCUMENTS, QUESTIONS))
    names = [pairs.array_path("train", array).name for array in PAIRS.ids]
    assert names == ["train.source-target.source", "train.source-target.target"]
    assert [path.name for path in pairs.dictionary_paths()] == ["dict.source.txt", "dict.target.txt"]
    assert documents.array_path("valid").name == "valid"
    assert documents.dictionary_paths() == [tmp_path / "dict.txt"]
    write_array(questions, "train", "question")
    assert questions.sequences("train", "question")[0].tolist() == [5, 6, 2]
    assert questions.splits("question") == ["train"]


@pytest.mark.parametrize(
    ("layout", "read", "message"),
    [
        (PAIRS, lambda f: f.dictionary(), r"dict\.source\.txt: not found; give .* arxiv_pubmed"),
        (BYTES, lambda f: f.corpus(), r"corpus\.json: not found; .* Run the same command again; it continues"),
        (QUESTIONS, lambda f: f.text("test", "id"), r"test\.id\.txt: not found; .* natural_questions or tydiqa"),
        (QUESTIONS, lambda f: f.array("train", "question"), r"question\.idx: not found; give a data folder made"),
        (DOCUMENTS, lambda f: f.text("test", "id"), r"id\.txt: .*no split 'test' \(there: half, train\)\. .*wikipedia"),
        (DOCUMENTS, lambda f: f.text("train", "id"), r"train\.id\.txt: not found; Make it with .* wikipedia"),
        (BYTES, lambda f: DataFolder(f.path / "no", BYTES).corpus(), r"no: no such folder$"),
        (DOCUMENTS, lambda f: f.array("test"), r"test\.idx: .*no split 'test' \(there: half, train\)\. .*wikipedia"),
        (DOCUMENTS, lambda f: f.array("half"), r"half\.bin: not found; Make it with .* wikipedia"),
        (DOCUMENTS, lambda f: tokenizer_config(f.path), r"config\.json: not found; is .* preprocessing wrote"),
    ],
)
def test_what_is_missing_is_named(layout, read, message, tmp_path):
    folder = DataFolder(tmp_path, layout)
    write_array(folder, "train")
    write_array(folder, "half")
    (tmp_path / "half.bin").unlink()
    with pytest.raises(FileNotFoundError, match=message):
        read(folder)


@pytest.mark.parametrize("content", ["{", "[]"])
def test_a_damaged_corpus_json_is_named(content, tmp_path):
    (tmp_path / "corpus.json").write_text(content)
    with pytest.raises(ValueError, match=r"corpus\.json: damaged .*preprocess again"):
        DataFolder(tmp_path, PAIRS).corpus()
    (tmp_path / "corpus.json").write_text(json.dumps({"corpus": "facts"}))
    assert DataFolder(tmp_path, PAIRS).corpus() == {"corpus": "facts"}


def test_pipes_devices_and_folders_are_not_waited_for_and_links_are_followed(tmp_path):
    folder = DataFolder(tmp_path, DOCUMENTS_WITH_TEXT)
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "config.json").write_text("{}")
    for name in ("dict.txt", "train.text.txt", "tokenizer/vocab.bpe"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "train.idx").mkdir()
    for name, read in {
        "dict.txt": folder.dictionary,
        "train.idx": lambda: folder.array("train"),
        "train.text.txt": lambda: folder.text("train", "text"),
        "vocab.bpe": lambda: tokenizer_config(tmp_path),
    }.items():
        with pytest.raises(FileNotFoundError, match=rf"{name}: not a file; "):
            read()
    (tmp_path / "elsewhere").write_text("a 1\n")  # large files often lie on another disk
    (tmp_path / "dict.txt").unlink()
    os.symlink(tmp_path / "elsewhere", tmp_path / "dict.txt")
    assert folder.dictionary().read_text() == "a 1\n"
    check_file(tmp_path, tmp_path / "dict.txt")  # of a folder without digests
    os.symlink("/dev/null", tmp_path / "corpus.json")
    for read in (folder.corpus, lambda: check_file(tmp_path, tmp_path / "dict.txt")):
        with pytest.raises(FileNotFoundError, match=r"corpus\.json: not a file; "):
            read()


def test_tokens_that_the_dictionary_lacks_are_named_where_no_digest_vouches_for_them(tmp_path):
    folder = DataFolder(tmp_path, DOCUMENTS)
    write_array(folder, "train")  # 5, 6, 2
    (tmp_path / "dict.txt").write_text("a 1\nb 1\nc 1\n")  # 4 to 6
    assert len(folder.sequences("train")) == 1
    (tmp_path / "dict.txt").write_text("a 1\nb 1\n")
    with pytest.raises(ValueError, match=r"train\.bin: has the token 6, and dict\.txt has 6 symbols, so they do not"):
        folder.sequences("train")
