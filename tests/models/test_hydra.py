"""fairseq-hydra-train builds the model that the same settings give as flags, of every architecture."""

import pytest
import torch
from fairseq import options, tasks
from fairseq.models import ARCH_MODEL_REGISTRY
from omegaconf import OmegaConf
from torch.nn import functional as F

import fairseq_poolingformer
from fairseq_poolingformer.char_lm.models import CharLanguageModel
from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.models.bart import PoolingformerBART
from fairseq_poolingformer.models.roberta import PoolingformerRoberta
from tests.models import tiny_bart

fairseq_poolingformer.register()

ENCODER = {"encoder_embed_dim": 16, "encoder_ffn_embed_dim": 24, "encoder_attention_heads": 2}
LEVELS = {"window_size": "3", "pooled_window_size": "9", "pool_kernel_size": 3, "global_tokens": 2}
BART = {**ENCODER, **LEVELS, "decoder_embed_dim": 16, "decoder_ffn_embed_dim": 24, "decoder_attention_heads": 2}
CHAR = {"decoder_embed_dim": 16, "decoder_ffn_embed_dim": 24, "decoder_attention_heads": 4, "dropout": 0.3}
SMALL = {  # model -> its task, and settings with which it is small and no default
    PoolingformerBART: ("long_summarization", BART | {"pool_mix": True}),
    PoolingformerRoberta: ("masked_lm", ENCODER | LEVELS | {"max_positions": 40, "max_relative_positions": 8}),
    CharLanguageModel: ("char_lm", CHAR),
}
ARCHITECTURES = sorted(
    name for name, model in ARCH_MODEL_REGISTRY.items() if model.__module__.startswith("fairseq_poolingformer.")
)


def flags(settings):
    for name, value in settings.items():
        flag = f"--{name.replace('_', '-')}"
        yield from [flag] if value is True else [flag, str(value)]


def setup(folder, name):
    task, settings = SMALL[ARCH_MODEL_REGISTRY[name]]
    words = [str(folder), "--user-dir", tiny_bart.USER_DIR, "--task", task, "--arch", name, *flags(settings)]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    return tasks.setup_task(args), args, settings


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_is_the_same_by_flags_and_by_hydra(folder, name):
    task, args, settings = setup(folder, name)
    tokens = torch.randint(4, 30, (2, 21), generator=torch.Generator().manual_seed(1))
    models, losses = [], []
    for cfg in (args, OmegaConf.create({"_name": name, **settings})):
        torch.manual_seed(2)
        models.append(task.build_model(cfg))
        torch.manual_seed(3)
        inputs = (tokens, None, tokens) if "bart" in name or "demo" in name else (tokens,)
        losses.append(F.cross_entropy(models[-1](*inputs)[0].transpose(1, 2), tokens).item())
    assert losses[0] == losses[1]
    assert str(models[0]) == str(models[1])
    torch.testing.assert_close(*(model.state_dict() for model in models), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["led_bart_base", "longformer_roberta_tiny", "gaa_lm_tiny"])
@pytest.mark.parametrize("setting", [{"windw_size": "4"}, {"encoder": {"embed_dim": 8}}])
def test_a_setting_that_the_model_does_not_have_is_refused(folder, name, setting):
    task, _, settings = setup(folder, name)
    with pytest.raises(UsageError, match=f"{name} has no setting {next(iter(setting))}: give the names of its flags"):
        task.build_model(OmegaConf.create({"_name": name, **settings, **setting}))
