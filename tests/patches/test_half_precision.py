"""bfloat16 and float16 on a CPU: checkpoints hold the names and the values of float32."""

from types import SimpleNamespace

import pytest
import torch
from fairseq import options, tasks
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.optim import FP16Optimizer
from fairseq.trainer import Trainer

import fairseq_poolingformer
from fairseq_poolingformer import checkpoints as checkpoint_files
from fairseq_poolingformer.patches import resuming
from fairseq_poolingformer.patches.half_precision import optimized_parameters
from tests import lab
from tests.models import tiny_bart
from tests.models.test_hydra import ARCHITECTURES, SMALL
from tests.models.test_hydra import flags as as_flags
from tests.patches.helpers import TRAINING, assert_same_parameters, generate, num_updates, parse, train, unpatched

fairseq_poolingformer.register()


@pytest.fixture(autouse=True)
def ours(monkeypatch):
    """fairseq's own task, as if it were the plugin's."""
    monkeypatch.setattr(resuming, "is_ours", lambda task: True)


@pytest.fixture
def computed(monkeypatch):
    dtypes, step = [], Trainer.train_step

    def train_step(self, samples, **kwargs):
        dtypes.append({param.dtype for param in self.model.parameters()})
        return step(self, samples, **kwargs)

    monkeypatch.setattr(Trainer, "train_step", train_step)
    return dtypes


HALF = {
    "bf16": (["--bf16"], torch.bfloat16),
    "memory-efficient-bf16": (["--memory-efficient-bf16"], torch.bfloat16),
    "fp16": (["--fp16"], torch.float16),
    "fp16-no-flatten-grads": (["--fp16", "--fp16-no-flatten-grads"], torch.float16),
    "memory-efficient-fp16": (["--memory-efficient-fp16"], torch.float16),
}


RESUMED = [("memory-efficient-fp16", "fused_adamw"), ("bf16", "clipped_adagrad"), ("fp16", "adam")]
RESUMED += [pytest.param(name, "adam", marks=pytest.mark.full) for name in HALF if name != "fp16"]


@pytest.mark.parametrize(("name", "optimizer"), RESUMED)
def test_a_resume_changes_no_bit(corpus, tmp_path, computed, name, optimizer):
    """The loss scale doubles every fourth update, and the training is stopped between two of these."""
    flags, dtype = HALF[name]
    flags = [*flags, "--optimizer", optimizer, "--fp16-scale-window", 4, "--dropout", "0.1"]
    whole = train(corpus, tmp_path / "whole", "--max-update", 7, *flags)
    train(corpus, tmp_path / "parts", "--max-update", 2, *flags)
    parts = train(corpus, tmp_path / "parts", "--max-update", 7, *flags)
    assert computed == [{dtype}] * 14
    assert_same_parameters(whole, parts, rtol=0, atol=0)
    state, other = whole["last_optimizer_state"], parts["last_optimizer_state"]
    assert state.keys() == other.keys()
    torch.testing.assert_close(state, other, rtol=0, atol=0)
    if "fp16" in name:
        assert state["loss_scale"] > 128
    is_rounded = [torch.equal(tensor, tensor.to(dtype).float()) for tensor in whole["model"].values()]
    assert all(is_rounded) == name.startswith("memory-efficient")
    assert len(generate(corpus, tmp_path / "parts" / "checkpoint_last.pt", "--batch-size", 12)) == 12


def test_a_checkpoint_of_fairseqs_in_half_precision_is_continued(corpus, tmp_path):
    """It has rounded parameters and no counts of the loss scale."""
    train(corpus, tmp_path, "--max-update", 2, "--fp16")
    path = tmp_path / "checkpoint_last.pt"
    state = checkpoint_files.read(path)
    state["model"] = {name: tensor.half().float() for name, tensor in state["model"].items()}
    assert state["extra_state"].pop("loss_scaler")["_iter"] == 2
    torch.save(state, path)
    assert num_updates(train(corpus, tmp_path, "--max-update", 4, "--fp16")) == 4


def test_flat_parameters_are_the_same_one_by_one():
    """As fairseq holds them on a GPU."""
    halves = [torch.nn.Parameter(torch.randn(shape).half()) for shape in ((2, 3), (4,), (1, 1, 2))]
    row = torch.nn.Parameter(torch.cat([half.data.float().flatten() for half in halves]))
    optimizer = object.__new__(FP16Optimizer)
    optimizer.fp16_params, optimizer.fp32_params = halves, {0: row}
    pairs = optimized_parameters(SimpleNamespace(optimizer=optimizer))
    assert [half for half, _ in pairs] == halves
    torch.testing.assert_close([value for _, value in pairs], [half.float() for half in halves], rtol=0, atol=0)
    pairs[1][1].data.copy_(torch.arange(4.0))
    assert torch.equal(row[6:10], torch.arange(4.0))


def test_bf16_learns_as_float32_does(corpus, tmp_path):
    half = train(corpus, tmp_path / "half", "--bf16", "--max-update", 5)
    full = train(corpus, tmp_path / "full", "--max-update", 5)
    assert_same_parameters(half, full, rtol=0.05, atol=0.05)


def test_amp_trains_in_float32_on_a_cpu(corpus, tmp_path, computed):
    train(corpus, tmp_path, "--amp", "--max-update", 2)
    assert computed == [{torch.float32}] * 2


def options_of(corpus, *extra):
    return parse(options.get_training_parser(), [corpus, *TRAINING, *extra]).common


def test_bf16_is_not_tpu(corpus, monkeypatch):
    for flags, tpu in (("--bf16", False), ("--memory-efficient-bf16", False), ("--bf16 --tpu", True), ("--tpu", True)):
        common = options_of(corpus, *flags.split())
        assert (common.tpu, common.bf16) == (tpu, "bf16" in flags)
    unpatched(monkeypatch, options, "parse_args_and_arch")
    assert options_of(corpus, "--bf16").tpu


# ----- float32 values, by every module's own names


def trainer(folder, name, *extra):
    """A trainer of an architecture at a tiny size."""
    task, settings = SMALL[ARCH_MODEL_REGISTRY[name]]
    words = [folder, "--user-dir", tiny_bart.USER_DIR, "--task", task, "--arch", name, *as_flags(settings)]
    words += ["--cpu", "--criterion", "cross_entropy", "--optimizer", "adam", "--lr", "0.01"]
    words += ["--no-save-optimizer-state", *extra]
    cfg = parse(options.get_training_parser(), words)
    task = tasks.setup_task(cfg.task)
    return Trainer(cfg, task, task.build_model(cfg.model), torch.nn.Module())


def checkpoint(folder, path, name, *extra):
    """A file of float32 values that half precision would round; the values."""
    saved = trainer(folder, name, *extra)
    torch.manual_seed(5)
    for parameter in saved.model.parameters():
        parameter.data.add_(torch.rand_like(parameter))
    saved.save_checkpoint(str(path), {"train_iterator": {"epoch": 1}, "val_loss": None})
    return {value_name: value.clone() for value_name, value in saved.model.state_dict().items()}


FREEZE = ("--freeze-pretrained", "--pretrained-positions", 20)
CASES = [(name, ()) for name in ARCHITECTURES]
CASES += [(name, FREEZE) for name in ARCHITECTURES if "roberta" in name or "deberta" in name]


@pytest.mark.parametrize(("name", "extra"), CASES)
def test_a_checkpoint_of_half_precision_holds_what_float32_reads_and_writes(tmp_path, name, extra):
    folder, path = lab.words(), tmp_path / "x.pt"
    values = checkpoint(folder, path, name, *extra)
    half = trainer(folder, name, *extra, "--fp16")
    assert list(half.state_dict()["model"]) == list(half.model.state_dict()) == list(values)
    half.load_checkpoint(str(path), reset_optimizer=True)
    torch.testing.assert_close(half.state_dict()["model"], values, rtol=0, atol=0)
    rounded = {key: value.half().to(value.dtype) for key, value in values.items()}
    torch.testing.assert_close(half.model.state_dict(), rounded, rtol=0, atol=0, check_dtype=False)


def test_a_frozen_value_that_has_changed_since_it_was_read_is_saved_as_it_is(tmp_path):
    name, key = "poolingformer_roberta_tiny", "encoder.sentence_encoder.embed_tokens.weight"
    checkpoint(lab.words(), tmp_path / "x.pt", name, *FREEZE)
    half = trainer(lab.words(), name, *FREEZE, "--fp16")
    half.load_checkpoint(str(tmp_path / "x.pt"))
    weight = half.model.state_dict()[key]
    assert half.state_dict()["model"][key].dtype == torch.float32
    weight[3] += 1
    assert torch.equal(half.state_dict()["model"][key], weight)
