"""Registering the plugin: all names are known at once, and their modules are imported when they are looked up."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from fairseq_poolingformer.registration import LATER, LazyRegistry, register
from preprocess.char_lm import make_folder
from tests.forked_python import PYTHON, start
from tests.integration.conftest import ROOT
from tests.tasks.folders import random_wikihop, write_wikihop

PACKAGE = ROOT / "fairseq_poolingformer"
DECORATED = re.compile(r'^@register_(task|criterion|optimizer|lr_scheduler|scorer)\(\s*"(\w+)"', re.MULTILINE)


@pytest.fixture
def in_new_process(tmp_path):
    """Runs code in a process of its own, and returns what it prints."""
    start()

    def run(code: str) -> str:
        (tmp_path / "code.py").write_text(code)
        command = [PYTHON, str(tmp_path / "code.py")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run


def test_the_list_is_that_of_the_sources():
    register()  # which lists the tasks
    found = {}
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for kind, name in DECORATED.findall(path.read_text(encoding="utf-8")):
            found[kind.replace("scorer", "scoring"), name] = module
    assert found == {(kind, name): module for kind, modules in LATER.items() for name, module in modules.items()}


def test_names_are_known_and_modules_are_imported_when_they_are_looked_up(in_new_process):
    in_new_process("""
import json, sys
import fairseq_poolingformer
from fairseq import criterions, tasks
from fairseq.registry import REGISTRIES
assert {"wikihop", "char_lm"} <= set(tasks.TASK_REGISTRY.keys()) and "rouge" in REGISTRIES["scoring"]["registry"].keys()
wikihop = "fairseq_poolingformer.tasks.wikihop.task"
assert wikihop not in sys.modules
assert "wikihop" in tasks.TASK_DATACLASS_REGISTRY and wikihop in sys.modules
assert tasks.TASK_REGISTRY["wikihop"] is sys.modules[wikihop].WikihopTask
assert "fairseq_poolingformer.tasks.coreference.task" not in sys.modules
assert "coreference" in {**tasks.TASK_REGISTRY} and "fairseq_poolingformer.tasks.coreference.task" in sys.modules
# without a parser, as fairseq-hydra-train does
from argparse import Namespace
assert type(criterions.build_criterion(Namespace(criterion="char_lm"), Namespace(
    train_memory=None, valid_memory=None, target_dictionary=None))).__name__ == "CharLMCriterion"
assert "no_such_task" not in tasks.TASK_REGISTRY and tasks.TASK_REGISTRY.get("no_such_task", 1) == 1
""")


def test_a_module_that_is_imported_by_itself_registers_too(in_new_process):
    in_new_process(
        "import fairseq.tasks, fairseq_poolingformer\n"
        "from fairseq_poolingformer.tasks.wikihop.task import WikihopTask\n"
        "assert fairseq.tasks.TASK_REGISTRY['wikihop'] is WikihopTask\n"
    )


def test_whoever_held_a_registry_before_holds_the_new_one(in_new_process):
    in_new_process(
        "from fairseq.tasks import TASK_REGISTRY\nimport fairseq_poolingformer\n"
        "assert TASK_REGISTRY['wikihop'].__name__ == 'WikihopTask'\n"
    )


def test_a_parser_that_was_made_before_has_all_choices(in_new_process):
    in_new_process(
        "from fairseq import options\nparser = options.get_training_parser()\n"
        "words = ['x', '--user-dir', 'fairseq_poolingformer', '--task', 'wikihop', '--criterion', 'document_task']\n"
        "args = options.parse_args_and_arch(parser, [*words, '--arch', 'poolingformer_roberta_tiny'])\n"
        "assert args.task == 'wikihop'\n"
    )


def test_a_module_that_fails_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "late_entry.py"
    module.write_text("raise ImportError('no such library')")
    registry = LazyRegistry({"there": 1}, {"late": "late_entry"})
    with pytest.raises(ImportError, match="no such library"):
        registry["late"]
    assert registry["there"] == 1
    assert list(registry) == ["there", "late"]


def test_an_entry_that_its_module_does_not_make_is_none(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "no_entry.py").write_text("")
    registry = LazyRegistry({}, {"name": "no_entry"})
    assert "name" not in registry
    assert registry.items() == []


TRAINING = """
import json, os, sys
sys.argv[1:] = {arguments!r}
entered = set()
def called(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith({package!r}) and code.co_flags & 2:  # a function
        entered.add(code.co_filename)
sys.setprofile(called)
from fairseq_cli.train import cli_main
cli_main()
sys.setprofile(None)
own = [module.__file__ for name, module in sys.modules.items() if name.startswith("fairseq_poolingformer")]
print(json.dumps([sum(os.path.getsize(path) > 0 for path in own), len(entered)]))
"""
SHORT = ["--user-dir", str(PACKAGE), "--cpu", "--num-workers", "0", "--max-update", "1", "--disable-validation"]
SHORT += ["--optimizer", "adam", "--lr", "1e-3", "--batch-size", "2", "--log-format", "none"]


def test_a_training_imports_what_it_needs(tmp_path, in_new_process):
    """Of the plugin's files, those that a training of one update imports, and those of which it calls a function.

    There were 195 and 80 to 87 when every task was imported.
    """

    def files(number: int, data: Path, *arguments: object) -> list[int]:
        words = [str(word) for word in (data, *arguments, "--save-dir", tmp_path / f"run{number}", *SHORT)]
        printed = in_new_process(TRAINING.format(arguments=words, package=str(PACKAGE)))
        return json.loads(printed.splitlines()[-1])

    (tmp_path / "text").write_bytes(b"abcdefgh" * 100)
    make_folder([str(tmp_path / "text")], tmp_path / "char_lm", sizes=(600, 100, 100))
    write_wikihop(tmp_path / "wikihop", {"train": random_wikihop(4)})
    characters = ["--task", "char_lm", "--criterion", "char_lm", "--arch", "transformer_xl_lm_tiny"]
    imported, entered = files(1, tmp_path / "char_lm", *characters, "--tokens-per-sample", 10)
    assert imported <= 104
    assert entered <= 61
    questions = ["--task", "wikihop", "--criterion", "document_task", "--arch", "poolingformer_roberta_tiny"]
    imported, entered = files(2, tmp_path / "wikihop", *questions)
    assert imported <= 104
    assert entered <= 65
