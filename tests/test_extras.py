"""Users who lack a library are told in one sentence what to install, and the attention needs torch alone."""

import ast
import json
import re
import sys
from pathlib import Path

import pytest
import transformers
from packaging.requirements import Requirement

from fairseq_poolingformer.extras import EXTRAS, is_too_old
from fairseq_poolingformer.text.tokenizers import SentencePieceTokenizer
from tests.lab import HIDE, PLUGIN, call, run_code
from tests.models import tiny_huggingface
from tests.test_package import setup_arguments
from tests.weights.test_sentencepiece_model import train

ROOT = Path(__file__).resolve().parents[1]
ALL = sorted({library for libraries in EXTRAS.values() for library in libraries})
ELSEWHERE = {
    "torch",
    "triton",
    "fairseq",
    "hydra",
    "omegaconf",
    "huggingface_hub",
    "tokenizers",
    "typing_extensions",  # of torch's own requirements
    "fairseq_poolingformer",
}


def test_versions_are_compared_by_their_numbers():
    versions = {"5.3.1": True, "5.22.9": True, "5.23": False, "5.100.0.dev0": False, "2.9.1+cpu": True, "10.0": False}
    assert {version: is_too_old(version, "library>=5.23") for version in versions} == versions


def test_the_extras_bring_what_the_examples_for_transformers_import(monkeypatch):
    """Trainer needs accelerate, which no example imports."""
    extras = setup_arguments(monkeypatch)["extras_require"]
    requirements = {
        requirement.name: requirement for requirement in map(Requirement, extras["huggingface"] + extras["onnx"])
    }
    assert {"accelerate", "protobuf", "onnxscript"} <= set(requirements)
    assert transformers.__version__ in requirements["transformers"].specifier
    assert list(requirements["transformers"].specifier.filter(["5.4", "6.0"])) == ["6.0"]
    pages = (ROOT / "docs" / f"{name}.md" for name in ("huggingface", "band"))
    document = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    blocks = re.findall(r"^```python\n(.*?)^```", document, flags=re.DOTALL | re.MULTILINE)
    nodes = [node for block in blocks for node in ast.walk(ast.parse(block))]
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    others = {name.partition(".")[0] for name in imported} - {*sys.stdlib_module_names, *requirements, "torch"}
    named = set(re.findall(r"pip install '?([a-z-]+)", document))
    assert {name.replace("_", "-") for name in others - {"fairseq_poolingformer"}} <= named


def test_every_library_is_in_an_extra():
    imported = {}
    for path in [*ROOT.glob("fairseq_poolingformer/**/*.py"), *ROOT.glob("preprocess/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            imported |= {name.partition(".")[0]: path for name in names}
    others = {name: path for name, path in imported.items() if name not in sys.stdlib_module_names}
    assert {name: path for name, path in others.items() if name not in {*ALL, *ELSEWHERE}} == {}


@pytest.mark.full
def test_tests_of_what_needs_no_fairseq_are_collected_without(tmp_path):
    """The selection of ``run_scripts/test.sh only=huggingface``."""
    folders = [str(ROOT / "tests" / name) for name in ("attention", "huggingface", "test_band.py")]
    code = f"import pytest; sys.exit(pytest.main(['-qq', '--collect-only', '-p', 'no:cacheprovider', *{folders}]))"
    run_code(code, tmp_path, hidden=["fairseq"])


def test_the_attention_needs_torch_alone_and_warns_of_nothing():
    """Imports of a Python that has imported nothing."""
    code = """
import torch, warnings
warnings.simplefilter("error")
from fairseq_poolingformer.attention import Pooling, TwoLevelAttention, Window, band_attention, pool_keys
query, key, value = (torch.randn(1, 2, 50, 8, requires_grad=True) for _ in range(3))
band_attention(query, key, value, window=Window(4)).sum().backward()
for kind in ("ldconv", "mean-ldconv", "mean", "max"):
    layer = TwoLevelAttention(
        16, 2, window=Window(3), pooled_window=Window(9), pooling=Pooling(5, 4), pool_type=kind, dropout=0.1
    )
    x = torch.randn(2, 37, 16, requires_grad=True)
    layer(x, global_mask=torch.arange(37).lt(1).expand(2, 37)).sum().backward()
    assert x.grad.isfinite().all()
"""
    call([sys.executable, "-c", HIDE.format([*ALL, "fairseq"]) + code])


# command -> the extra that it names where there is only torch
COMMANDS = {
    "preprocess imdb": "text",
    "preprocess check folder": "text",
    "convert to-fairseq folder output": "text",
    "summarize --demo paper.txt": "text",
    "show paper.txt": "fairseq",
    "predict folder --path model.pt --output predictions": "text",
    "score --task coreference predictions --gold gold": "scoring",
    "score --task question_answering predictions.json --gold gold.json": "scoring",
    "eval-lm folder --path model.pt": "text",
    "average-checkpoints --inputs a.pt --output b.pt": "fairseq",
}
RUN = """
import contextlib, io, json, os
from fairseq_poolingformer.cli.main import main
open("gold.json", "w").write("{}")
open("predictions.json", "w").write("{}")
open("paper.txt", "w").write("text")
os.mkdir("folder")
open("folder/corpus.json", "w").write('{"kind": "wikihop"}')
said = {}
for command in COMMANDS:
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        try:
            assert main(command.split()) == 1, command
        except SystemExit as ended:
            errors.write(f"{ended}\\n")
    said[command] = errors.getvalue()
print(json.dumps(said))
"""


def test_a_command_that_lacks_a_library_says_in_one_sentence_what_to_install(tmp_path):
    said = json.loads(run_code(f"COMMANDS = {list(COMMANDS)}\n{RUN}", tmp_path, hidden=[*ALL, "fairseq"]))
    for command, extra in COMMANDS.items():
        name = command.split()[0]
        lacks = rf"\w+ is not installed: pip install '\.\[{extra}\]' in a clone of fairseq_poolingformer"
        if extra == "fairseq":  # itself
            lacks = "this command needs fairseq: pip install .*"
        sentence = rf"poolingformer {name}: {lacks}( \(--traceback shows where\))?\n"
        assert re.fullmatch(sentence, said[command]), f"{command}: {said[command]}"


@pytest.mark.parametrize(
    ("library", "code", "extra"),
    [
        ("transformers", "import fairseq_poolingformer.band", "huggingface"),
        ("nltk", "import fairseq_poolingformer.tasks.summarization.rouge as it; it.rouge_scores('a', 'a')", "scoring"),
        ("scipy", "import fairseq_poolingformer.tasks.coreference.scores as it; it.ceaf_e([[1]], [[1]])", "scoring"),
    ],
)
def test_an_import_says_what_to_install(library, code, extra, tmp_path):
    code = f"try:\n    {code}\nexcept ModuleNotFoundError as error:\n    print(error.name, error)\n"
    said = run_code(code, tmp_path, hidden=[library])
    assert said.startswith(library)
    assert f"[{extra}]'" in said


def test_a_command_of_fairseq_says_it_too(tmp_path):
    words = ["folder", *PLUGIN, "--task", "question_answering"]
    said = run_code("import fairseq_cli.train as it; it.cli_main()", tmp_path, *words, hidden=["tiktoken"], status=1)
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith("error: tiktoken is not installed: pip install '.[fairseq]' in")


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta"])
def test_the_way_to_fairseq_needs_no_transformers(kind, tmp_path):
    source = tiny_huggingface.folder(tmp_path / "hf", "roberta")
    if kind == "xlm-roberta":
        model = train(tmp_path / "it")
        rows = len(SentencePieceTokenizer(model)) + 1
        tiny_huggingface.model(kind, vocab_size=rows).save_pretrained(source := tmp_path / "xlmr")
        model.rename(source / "sentencepiece.bpe.model")
    code = f"""
from fairseq_poolingformer.cli.convert import main
assert main(["to-fairseq", {str(source)!r}, {str(tmp_path / "fairseq")!r}]) == 0
sys.stderr = sys.stdout
assert main(["to-huggingface", {str(tmp_path / "fairseq" / "model.pt")!r}, {str(tmp_path / "back")!r}]) == 1
"""
    said = run_code(code, tmp_path, hidden=["transformers", "tokenizers"])
    assert said.splitlines()[-1].startswith("poolingformer convert: transformers is not installed: pip install")
