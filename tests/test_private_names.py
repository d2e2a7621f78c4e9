import ast
import inspect
from collections import defaultdict
from pkgutil import resolve_name

import pytest
from transformers.utils.hub import cached_files

from fairseq_poolingformer import private_names
from fairseq_poolingformer.private_names import ARGUMENTS, FAIRSEQ, INSTANCES, TORCH, TRANSFORMERS
from tests.lab import ROOT, run_code

# public in spirit: argparse's parts that have no other name, and what Python documents
OF_PYTHON = {"_ActionsContainer", "_ArgumentGroup", "_SubParsersAction", "_actions", "_exit", "_option_string_actions"}
OF_PYTHON |= {"_replace"}


@pytest.mark.parametrize("name", [*TRANSFORMERS, *TORCH, *FAIRSEQ])
def test_a_name_exists(name):
    resolve_name(name)


@pytest.mark.parametrize(("name", "attribute"), [(name, each) for name, all_ in INSTANCES.items() for each in all_])
def test_instances_have_an_attribute(name, attribute):
    assert attribute in inspect.getsource(resolve_name(name))


def test_arguments_exist():
    assert set(ARGUMENTS) <= set(inspect.signature(cached_files).parameters)


def test_the_list_has_every_private_name_of_others():
    """An attribute that nothing here defines, or that a definition here takes from ``super()``."""
    used, defined, inherited = set(), set(), defaultdict(list)
    for path in [*ROOT.glob("fairseq_poolingformer/**/*.py"), *ROOT.glob("preprocess/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                defined.add(node.name)
                inherited[node.name].append(f"super().{node.name}" in ast.unparse(node))
            elif isinstance(node, ast.Attribute):
                (defined if isinstance(node.ctx, ast.Store) else used).add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                defined.add(node.id)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                used |= {*node.module.split("."), *(alias.name for alias in node.names)}
    foreign = used - defined | {name for name, calls in inherited.items() if all(calls)}
    private = {name for name in foreign if name.startswith("_") and not name.startswith("__")}
    names = {part for name in (*TRANSFORMERS, *TORCH, *FAIRSEQ) for part in name.replace(":", ".").split(".")}
    assert private - OF_PYTHON - names - {each for all_ in INSTANCES.values() for each in all_} == set()


def test_an_import_says_which_transformers_were_tried_and_other_errors_pass(tmp_path):
    code = """
from transformers import PreTrainedModel
del PreTrainedModel._init_weights
import fairseq_poolingformer.huggingface
"""
    last = run_code(code, tmp_path, status=1).splitlines()[-1]
    assert last.startswith("ImportError: transformers 5.")
    assert "'_init_weights'" in last
    assert last.endswith(f"install one that it was tried with, {private_names.TRIED}")
    for error in (ImportError("no module torchvision"), AttributeError("x")):
        with pytest.raises(type(error), match=str(error)), private_names.tried_transformers():
            raise error
