"""``--ddp-backend fully_sharded``: two processes that hold half of everything train as two that hold all of it."""

from types import SimpleNamespace

import pytest
import torch
from fairseq import options
from fairseq.trainer import Trainer
from torch import nn

from fairseq_poolingformer.patches.distribution import fully_sharded
from fairseq_poolingformer.patches.untrusted_files.checkpoints import load
from tests.patches.helpers import TRAINING, assert_same_parameters, in_processes, parse, train

CRITERION = ["--criterion", "linear_cross_entropy", "--clip-norm", "0.1", "--no-epoch-checkpoints"]


def train_in_two(corpus, save_dir, updates, *extra):
    """Train in two processes up to so many updates; returns the last checkpoint."""

    def process(rank, meeting):
        ranks = ["--distributed-world-size", 2, "--distributed-rank", rank, "--distributed-no-spawn"]
        train(
            corpus, save_dir, *CRITERION, "--max-update", updates, *ranks, "--distributed-init-method", meeting, *extra
        )

    in_processes(2, process)
    return load(save_dir / "checkpoint_last.pt")


def assert_same_optimizer(first, second):
    first, second = (state["last_optimizer_state"]["state"] for state in (first, second))
    assert first.keys() == second.keys()
    for number, entry in first.items():
        for name in ("exp_avg", "exp_avg_sq"):
            torch.testing.assert_close(entry[name], second[number][name], rtol=1e-3, atol=1e-7)


def test_sharded_processes_train_as_whole_ones_and_continue_each_others_checkpoints(corpus, tmp_path):
    sharded = ["--ddp-backend", "fully_sharded"]
    first = train_in_two(corpus, tmp_path / "a", 2)
    second = train_in_two(corpus, tmp_path / "b", 2, *sharded)
    assert_same_parameters(first, second)
    assert_same_optimizer(first, second)
    assert all(type(tensor) is torch.Tensor for tensor in second["model"].values())

    first = train_in_two(corpus, tmp_path / "a", 4, *sharded, "--checkpoint-activations")
    second = train(corpus, tmp_path / "b", *CRITERION, "--max-update", 4, "--update-freq", 2)
    assert second["optimizer_history"][-1]["num_updates"] == 4
    assert_same_parameters(first, second)
    assert_same_optimizer(first, second)


def test_bfloat16_computes_from_float32_shares(corpus, tmp_path):
    exact = train_in_two(corpus, tmp_path / "exact", 1)
    rounded = train_in_two(corpus, tmp_path / "rounded", 1, "--ddp-backend", "fully_sharded", "--bf16")
    assert {tensor.dtype for tensor in rounded["model"].values()} == {torch.float32}
    for entry, other in zip(*(s["last_optimizer_state"]["state"].values() for s in (exact, rounded)), strict=True):
        assert other["exp_avg"].dtype == torch.float32
        torch.testing.assert_close(entry["exp_avg"], other["exp_avg"], rtol=0.1, atol=2e-4)
        assert not torch.equal(entry["exp_avg"], other["exp_avg"])


class Model(nn.Module):
    """Two layers, and a parameter of which each process cannot hold the same number of rows."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)])
        self.out = nn.Linear(6, 3, bias=False)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


def test_a_process_holds_its_share_and_the_norm_is_of_all():
    def process(rank, meeting):
        torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
        torch.manual_seed(rank)  # the first process's parameters count
        model = Model()
        fully_sharded.shard(model, "cpu")
        shares = [parameter.to_local().numel() for parameter in model.parameters()]
        assert shares == [18, 18, 12 if rank == 0 else 6]
        rows = [parameter.full_tensor() for parameter in model.parameters()]
        torch.manual_seed(0)
        assert all(torch.equal(one, other) for one, other in zip(rows, Model().parameters(), strict=True))

        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        trainer = SimpleNamespace(
            cfg=SimpleNamespace(distributed_training=SimpleNamespace(ddp_backend="fully_sharded")),
            data_parallel_world_size=2,
            data_parallel_process_group=None,
            optimizer=SimpleNamespace(params=model.parameters()),
        )
        trainer.optimizer.params = list(model.parameters())
        norm = Trainer.clip_grad_norm(trainer, 1.0)
        torch.testing.assert_close(norm, torch.tensor(90.0).sqrt())
        torch.testing.assert_close(model.out.weight.grad.full_tensor(), torch.full((3, 6), 90.0**-0.5))
        torch.distributed.destroy_process_group()

    in_processes(2, process)


def test_layers_that_share_a_parameter_stay_together():
    model = Model()
    assert list(fully_sharded.layers(model)) == list(model.layers)
    model.tied = model.layers[1]
    assert list(fully_sharded.layers(model)) == [model.layers[0]]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--fp16"], "--fp16 and --amp: use --bf16"),
        (["--memory-efficient-bf16"], "use --bf16"),
        (["--zero-sharding", "os"], "the optimizer is sharded as well"),
        (["--use-sharded-state"], "checkpoints are whole"),
        (["--store-ema"], "--store-ema: use the default --ddp-backend"),
    ],
)
def test_what_does_not_go_with_shares_is_refused(flags, message):
    cfg = parse(options.get_training_parser(), ["data", *TRAINING, "--ddp-backend", "fully_sharded", *flags])
    with pytest.raises(ValueError, match=message):
        fully_sharded.check(cfg, SimpleNamespace(), nn.Identity())


def test_a_task_that_generates_while_validating_is_refused():
    """Processes that write summaries of other lengths would wait for each other's layers for ever."""
    cfg = parse(options.get_training_parser(), ["data", *TRAINING, "--ddp-backend", "fully_sharded"])
    fully_sharded.check(cfg, SimpleNamespace(sequence_generator=None), nn.Identity())
    with pytest.raises(ValueError, match="validate by the loss"):
        fully_sharded.check(cfg, SimpleNamespace(sequence_generator=object()), nn.Identity())


def test_an_optimizer_of_whole_parameters_is_refused(monkeypatch):
    monkeypatch.setattr(fully_sharded, "_asks_for_sharding", lambda trainer: True)
    trainer = SimpleNamespace(_optimizer=SimpleNamespace(supports_flat_params=False))
    with pytest.raises(ValueError, match="use --optimizer fused_adamw or adam"):
        fully_sharded.load_share_of_optimizer_state(lambda trainer: None, trainer)
