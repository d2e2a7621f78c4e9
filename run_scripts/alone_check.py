"""Checks an installed package that has torch alone, outside the repository. ``test_package.sh`` runs it.

    python alone_check.py DOCUMENT    # whose examples it runs, docs/attention.md

It computes both levels forward and backward, and asks commands and modules that need more for their one sentence.
"""

import importlib
import importlib.util
import pkgutil
import re
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from pathlib import Path

import torch

from fairseq_poolingformer.cli.main import COMMANDS
from fairseq_poolingformer.extras import EXTRAS, MissingLibraryError

warnings.simplefilter("error")  # of torch itself, there may be one before
TRITON = "fairseq_poolingformer.attention.backends.triton."


def run_examples(document: Path) -> int:
    """Run the page's examples that need no transformers, and return their number."""
    blocks = re.findall(r"^```python\n(.*?)^```", document.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    mine = [block for block in blocks if "transformers" not in block]
    given = {}
    for block in mine:
        exec(compile(block, document.name, "exec"), given)
    given["y"].sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in given["layer"].parameters())
    return len(mine)


def import_the_attention() -> int:
    """Import every module of the attention, and return their number."""
    package = importlib.import_module("fairseq_poolingformer.attention")
    names = [module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    if importlib.util.find_spec("triton") is None:
        names = [name for name in names if not name.startswith(TRITON)]
    for name in names:
        importlib.import_module(name)
    return len(names)


def ask_what_is_missing(folder: Path) -> None:
    """Each command works without a library, or says in a sentence what to install; so does an import."""
    script = Path(sysconfig.get_path("scripts"), "poolingformer")
    (folder / "corpus.json").write_text('{"kind": "wikihop"}')
    calls = {
        "preprocess": ["imdb", "--help"],
        "convert": ["to-fairseq", "bart", "converted"],
        "summarize": ["--demo", __file__],
        "show": [__file__],
        "predict": [folder, "--model", "model.pt", "--output", "predictions"],
        "score": ["--help"],
        "eval-lm": ["data", "--model", "model.pt"],
        "doctor": [],
        "average-checkpoints": ["--inputs", "model.pt", "--output", "mean.pt"],
    }
    for name in COMMANDS:
        done = subprocess.run([script, name, *calls[name]], capture_output=True, text=True)
        if name in ("score", "doctor"):
            assert (done.returncode, done.stderr) == (0, ""), done.stderr
        else:
            assert done.returncode == 1, (name, done.returncode)
            lacks = "(is not installed|this command needs fairseq)"
            assert re.fullmatch(rf"poolingformer.* {lacks}: pip install .*\n", done.stderr), done.stderr
    for name in ("huggingface", "band"):
        try:
            importlib.import_module(f"fairseq_poolingformer.{name}")
        except MissingLibraryError as error:
            said = str(error)
        assert "[huggingface]" in said
        said = ""


def main(document: str) -> int:
    """The command line."""
    libraries = sorted({library for names in EXTRAS.values() for library in names})
    there = [library for library in libraries if importlib.util.find_spec(library)]
    assert there == [], f"there is more than torch: {there}"
    modules, examples = import_the_attention(), run_examples(Path(document))
    with tempfile.TemporaryDirectory() as folder:
        ask_what_is_missing(Path(folder))
    print(f"torch {torch.__version__} alone: {modules} modules, {examples} examples and all commands are right")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
