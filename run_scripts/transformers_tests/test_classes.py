"""transformers' own tests of its models, for its classes and for this package's; ``test_transformers.sh`` runs them.

Each module of tests is loaded twice: as it is, and with this package's class, ``Poolingformer`` before its name, in
place of each of transformers' that has one here. Classes without one are left out of the lists of what to test.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType
from unittest import mock

import fairseq_poolingformer.huggingface

FAMILIES = {  # folder of transformers' models and of their tests -> the start of their classes' names
    "bart": "Bart",
    "bert": "Bert",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "marian": "Marian",
    "mbart": "MBart",
    "modernbert": "ModernBert",
    "mpnet": "MPNet",
    "pegasus": "Pegasus",
    "roberta": "Roberta",
    "t5": "T5",
}
SMALL = {  # the tests' inputs have seven tokens
    "window_size": "2",
    "pooled_layers": "1",
    "pooled_window_size": "4",
    "pool_kernel_size": 3,
    "pool_stride": 2,
}


def classes_here() -> dict[str, type]:
    """The classes of this package by the names of those of transformers that they stand for."""
    package = fairseq_poolingformer.huggingface.__name__
    modules = [module for name, module in sorted(sys.modules.items()) if f"{name}.".startswith(f"{package}.")]
    found = {name: value for module in modules for name, value in vars(module).items() if isinstance(value, type)}
    start = "Poolingformer"
    return {name.removeprefix(start): value for name, value in found.items() if name.startswith(start)}


@contextlib.contextmanager
def in_place(folder: str, classes: dict[str, type]) -> Iterator[None]:
    """Have transformers give these classes by the names of its own."""
    modules = [f"transformers.models.{folder}.modeling_{folder}", "transformers"]
    with contextlib.ExitStack() as stack:
        for module in map(importlib.import_module, modules):
            for name, value in classes.items():
                if hasattr(module, name):
                    stack.enter_context(mock.patch.object(module, name, value))
        yield


def name_heads(folder: str, classes: dict[str, type]) -> None:
    """Have the tests know which labels a class takes, which they look up by its name in transformers' lists."""
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    for name, listed in vars(auto).items():
        if name.startswith("MODEL_") and name.endswith("_NAMES") and listed.get(folder) in classes:
            ours = classes[listed[folder]]
            listed[ours.config_class.model_type] = ours.__name__


def check_encoder_attentions(case, attentions, batch_size, config, prompt_length) -> None:
    """Of a model here they are a band, not n × n."""
    shapes = {tuple(weights.level_one.band.shape[:3]) for weights in attentions}
    assert shapes == {(batch_size, config.num_attention_heads, prompt_length)}


def case_of_ours(original: ModuleType, folder: str, start: str) -> type:
    """The test case of a module, loaded once more with the classes of this package."""
    classes = {name: value for name, value in classes_here().items() if name.startswith(start)}
    spec = importlib.util.spec_from_file_location(f"{original.__name__}_of_poolingformers", original.__file__)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    name_heads(folder, classes)
    with in_place(folder, classes):
        spec.loader.exec_module(module)
    case, tester = getattr(module, f"{start}ModelTest"), getattr(module, f"{start}ModelTester")
    ours = set(classes.values())
    assert ours.intersection(case.all_model_classes), f"the tests of {start} take no class of this package"
    case.all_model_classes = tuple(value for value in case.all_model_classes if value in ours)
    case.pipeline_model_mapping = {task: value for task, value in case.pipeline_model_mapping.items() if value in ours}
    case._check_encoder_attention_for_generate = check_encoder_attentions
    make = tester.get_config

    def get_config(self):
        """The tests' configuration, with windows that are smaller than their inputs."""
        config = make(self)
        small = type(config).from_dict({**config.to_dict(), **SMALL})
        small._attn_implementation = config._attn_implementation
        return small

    tester.get_config = get_config
    return case


for folder, start in FAMILIES.items():
    if f"{start}Config" not in classes_here():
        continue
    tests = importlib.import_module(f"tests.models.{folder}.test_modeling_{folder}")
    globals()[f"Test{start}"] = getattr(tests, f"{start}ModelTest")
    globals()[f"TestPoolingformer{start}"] = case_of_ours(tests, folder, start)
del tests  # a module that pytest need not look into
