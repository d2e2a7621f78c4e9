"""fairseq loads what the converter writes, so the plugin is registered, whichever file of tests runs."""

from importlib.util import find_spec

import torch

import fairseq_poolingformer
from fairseq_poolingformer.cli import convert
from fairseq_poolingformer.weights import files
from tests.models import tiny_huggingface

if find_spec("fairseq"):
    fairseq_poolingformer.register()


def run(*arguments) -> int:
    """Run poolingformer convert in this process; its exit status."""
    return convert.main([str(argument) for argument in arguments])


def converted(path, model_type, *flags, **changes):
    """A tiny folder of Hugging Face, and the checkpoint that is made from it."""
    source = tiny_huggingface.folder(path / "hf", model_type, **changes)
    assert run("to-fairseq", source, path / "fairseq", *flags) == 0
    return source, path / "fairseq" / "model.pt"


def back_in_huggingface(path, model_type, *flags):
    """The model that a checkpoint becomes, in ``back`` beside its folder; every weight of it is there."""
    folder = path.parent.parent / "back"
    assert run("to-huggingface", path, folder, *flags) == 0
    model, info = tiny_huggingface.MODELS[model_type].from_pretrained(folder, output_loading_info=True)
    assert not any(info.values())
    return model.eval()


def assert_same_checkpoints(*paths, names=()):
    """Settings but for the data folder, parameters, and files beside them."""
    (settings, state, _), (other_settings, other_state, _) = map(files.read_training, paths)
    assert {**settings, "data": None} == {**other_settings, "data": None}
    torch.testing.assert_close(state, other_state, rtol=0, atol=0)
    for name in names:
        assert (paths[0].parent / name).read_bytes() == (paths[1].parent / name).read_bytes()
