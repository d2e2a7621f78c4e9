"""Checks an installed package without fairseq, outside the repository. ``test_package.sh`` runs it.

    python package_check.py DOCUMENT    # whose training with Trainer and export to ONNX it runs, docs/huggingface.md

It imports what needs no fairseq, asks every command for its help, makes, saves, loads and runs tiny models, and reads a
tokenizer of sentencepiece.
"""

import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import sentencepiece
import torch
from tokenizers import Tokenizer, models
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
)

import fairseq_poolingformer
from fairseq_poolingformer.attention import Pooling, TwoLevelAttention, Window
from fairseq_poolingformer.cli.main import COMMANDS
from fairseq_poolingformer.huggingface import (
    PoolingformerBartConfig,
    PoolingformerBartForConditionalGeneration,
    PoolingformerRobertaConfig,
    PoolingformerRobertaForMaskedLM,
)

WITHOUT_FAIRSEQ = ("attention", "text", "weights", "huggingface")
NEEDS_TRITON = "fairseq_poolingformer.attention.backends.triton."
EXAMPLES = {"Seq2SeqTrainer": "make a BART long", "torch.onnx.export": "ONNX"}  # of the document, by what is in them
TINY = {  # what they say -> what is run
    "facebook/bart-base": "short",
    "16384": "120",
    "3-5": "1",
    "bf16=True": 'use_cpu=True, report_to=[], save_strategy="no"',
    "num_train_epochs=10": "max_steps=2",
}
LEVELS = {"window_size": "4", "pooled_window_size": "16", "pooled_layers": "1"}


def import_everything() -> int:
    """Import every module of the packages that need no fairseq, and return their number."""
    names = ["fairseq_poolingformer.band"]
    for package in WITHOUT_FAIRSEQ:
        root = importlib.import_module(f"fairseq_poolingformer.{package}")
        names += [module.name for module in pkgutil.walk_packages(root.__path__, f"{root.__name__}.")]
    if importlib.util.find_spec("triton") is None:
        names = [name for name in names if not name.startswith(NEEDS_TRITON)]
    for name in names:
        importlib.import_module(name)
    assert "fairseq" not in sys.modules
    return len(names)


def ask_for_help() -> None:
    """Run ``poolingformer --help`` and ``poolingformer COMMAND --help`` as installed."""
    script = Path(sysconfig.get_path("scripts"), "poolingformer")
    for command in ([], *([name] for name in COMMANDS)):
        output = subprocess.run([script, *command, "--help"], capture_output=True, text=True, check=True).stdout
        assert output.startswith(" ".join(["usage: poolingformer", *command])), output


def run_models() -> None:
    """Compare both levels with the reference, and take tiny models through a folder."""
    torch.manual_seed(0)
    layer = TwoLevelAttention(16, 2, window=Window(3), pooled_window=Window(9), pooling=Pooling(5, 4)).eval()
    x = torch.randn(2, 37, 16)
    fast = layer(x)
    layer.backend = "reference"
    torch.testing.assert_close(fast, layer(x), rtol=1e-4, atol=1e-5)

    sizes = {"encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    bart = PoolingformerBartConfig(vocab_size=40, d_model=16, max_position_embeddings=64, **sizes, **heads, **LEVELS)
    tokens = torch.randint(4, 40, (2, 50))
    model = PoolingformerBartForConditionalGeneration(bart).eval()
    again = through_a_folder(model, AutoModelForSeq2SeqLM)
    search = {"num_beams": 2, "max_length": 8, "do_sample": False}
    assert again.generate(tokens, **search).equal(model.generate(tokens, **search))

    roberta = PoolingformerRobertaConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        **LEVELS,
    )
    model = PoolingformerRobertaForMaskedLM(roberta).eval()
    assert through_a_folder(model, AutoModelForMaskedLM)(tokens).logits.equal(model(tokens).logits)


def through_a_folder(model, auto):
    """Save a model and load it by ``AutoModel…``."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return auto.from_pretrained(folder).eval()


def run_documented_examples(document: Path) -> None:
    """Make a tiny BART long, train it by Trainer and export it to ONNX, as the document says."""
    sizes = {"encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "d_model": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        config = BartConfig(vocab_size=40, max_position_embeddings=60, **sizes, **heads)
        BartForConditionalGeneration(config).save_pretrained("short")
        words = {word: row for row, word in enumerate(("<s>", "<pad>", "</s>", "<unk>", *"abcdefgh"))}
        names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
        backend = Tokenizer(models.WordLevel(words, "<unk>"))
        PreTrainedTokenizerFast(tokenizer_object=backend, **names).save_pretrained("short")
        record = json.dumps({"document": "a", "summary": "b"})
        Path("train.jsonl").write_text(f"{record}\n{record}\n")
        blocks = re.findall(r"^```python\n(.*?)^```", document.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        given = {}
        for mark, name in EXAMPLES.items():
            (block,) = (block for block in blocks if mark in block)
            for theirs, ours in TINY.items():
                block = block.replace(theirs, ours)
            exec(compile(block, name, "exec"), given)
        assert {"summarizer", "encoder.onnx"} <= {path.name for path in Path().iterdir()}
        os.chdir(document.parent)


def read_a_sentencepiece_model() -> None:
    """Open the tokenizer of a folder that has ``sentencepiece.bpe.model`` alone, as XLM-R's first ones had."""
    with tempfile.TemporaryDirectory() as folder:
        XLMRobertaConfig(vocab_size=40).save_pretrained(folder)
        path = Path(folder, "sentencepiece.bpe")
        text = iter(["the thing in the other thing"] * 20)
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=text, model_prefix=str(path), vocab_size=24, hard_vocab_limit=False, minloglevel=2
        )
        Path(f"{path}.vocab").unlink()
        assert len(AutoTokenizer.from_pretrained(folder)("the thing")["input_ids"]) > 2


def main(document: str) -> int:
    """The command line."""
    home = Path(fairseq_poolingformer.__file__).resolve().parent
    assert Path(sysconfig.get_path("purelib")).resolve() in home.parents, f"{home} is not the installed package"
    count = import_everything()
    run_models()
    run_documented_examples(Path(document).resolve())
    read_a_sentencepiece_model()
    ask_for_help()
    print(f"Python {sys.version.split()[0]}, torch {torch.__version__}: {count} modules, commands and models work")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
