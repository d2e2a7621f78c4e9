"""Text that is tokenized already is named, and tables of numbers are not."""

import io
import random

import pytest
import sentencepiece

from preprocess import char_lm, plain_text
from preprocess.pipeline.tokenized import SAMPLE, beginning, tokens_in
from tests import lab
from tests.tasks.masked_lm.mlm_folder import random_texts

TEXT = "The old town hall, built in 1901, has 3 halls and 24 rooms; ## Rooms\n\n[[Main Page]] is 12 x 12 m.\n" * 30
NUMBERS = random.Random(0)


def pieces() -> str:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([TEXT] * 3), model_writer=model, vocab_size=40, minloglevel=2
    )
    return " ".join(sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()).encode(TEXT, out_type=str))


TOKENIZED = {
    "bytes": (" ".join(map(str, TEXT.encode())), "numbers of bytes or tokens"),  # as prep_enwik8.py writes them
    "ids": ("\n".join(" ".join(map(str, range(n, 3 * n))) for n in range(9, 40)), "numbers of bytes or tokens"),
    "sentencepiece": (pieces, "sentencepiece's pieces"),
    "gpt2": (" ".join(f"\u0120{word}" for word in TEXT.split()), "GPT-2's pieces"),
    "subword-nmt": (TEXT.replace("halls", "hall@@ s").replace("rooms", "ro@@ oms"), "pieces of subword-nmt"),
    "word pieces": (TEXT.replace("halls", "hall ##s").replace("rooms", "ro ##oms"), "word pieces"),
}
OTHERS = {
    "text": TEXT,
    "texts": "\n".join(random_texts(20, 40)),
    "a table": "\n".join(" ".join(str(NUMBERS.randint(0, 999)) for _ in range(7)) for _ in range(99)),
    "columns": "\n".join("\t".join(map(str, range(n))) for n in range(5, 30)),
    "decimals": " ".join(f"{NUMBERS.random():.3f}" for _ in range(999)),
    "few": "1 2 3 4",
}


@pytest.mark.parametrize("name", TOKENIZED)
def test_tokens_are_named(name):
    text, kind = TOKENIZED[name]
    assert tokens_in(text() if callable(text) else text) == kind


@pytest.mark.parametrize("name", OTHERS)
def test_other_text_is_let_through(name):
    assert tokens_in(OTHERS[name]) is None


def test_a_sample_ends():
    def texts():
        yield "a" * (SAMPLE - 1)
        yield "bc"
        raise AssertionError

    assert beginning(texts()) == "a" * (SAMPLE - 1) + "\nb"


def test_control_characters_of_windows_text_are_told(tmp_path, capsys):
    """CP1252 that was read as Latin-1 is UTF-8 without euros and quotes, at the end of a long text, too."""
    before = ("text\n" * 2**19)[: 2**21 - 1]  # more than SAMPLE; the first one lies in two blocks
    for name, encoding in (("train", "latin-1"), ("valid", "cp1252")):
        text = before + "„five €“\n".encode("cp1252").decode(encoding)
        (tmp_path / name).write_text(text, encoding="utf-8")
    files = ["--input", str(tmp_path / "train"), "--valid", str(tmp_path / "valid"), "--gpt2-bpe", str(lab.gpt2())]
    warning = "3 characters are control characters, such as U+0080: was text of Windows read as Latin-1? Then "
    warning += "convert the original with iconv -f CP1252 -t UTF-8"
    for _ in range(2):  # made, and up to date
        assert plain_text.main([*files, "--output-folder", str(tmp_path / "data"), "--workers", "1"]) == 0
        assert [line for line in capsys.readouterr().out.splitlines() if "Latin-1" in line] == [f"train: {warning}"]
        for name, lines in (("train", [f"WARNING: {tmp_path / 'train'}: {warning}"]), ("valid", [])):
            assert char_lm.main(["--input", str(tmp_path / name), "--output-folder", str(tmp_path / f"b{name}")]) == 0
            assert [line for line in capsys.readouterr().err.splitlines() if "Latin-1" in line] == lines


def test_commands_say_which_split_it_is_and_go_on(tmp_path, capsys):
    for name, text in (("train", "ids"), ("valid", "text")):
        (tmp_path / name).write_text({**OTHERS, "ids": TOKENIZED["ids"][0]}[text], encoding="utf-8")
    files = ["--input", str(tmp_path / "train"), "--valid", str(tmp_path / "valid"), "--gpt2-bpe", str(lab.gpt2())]
    assert plain_text.main([*files, "--output-folder", str(tmp_path / "data"), "--workers", "1"]) == 0
    warnings = [line for line in capsys.readouterr().out.splitlines() if "tokens" in line and "give the text" in line]
    assert [line.split(":")[0] for line in warnings] == ["train"]
    for name in ("train", "valid"):
        arguments = ["--input", str(tmp_path / name), "--output-folder", str(tmp_path / f"bytes_{name}")]
        for _ in range(2):
            assert char_lm.main(arguments) == 0
            assert ("give the raw text (prep_enwik8.py" in capsys.readouterr().err) == (name == "train")
