"""--compile-layers: the number of graphs, the losses of eager layers, refusals, and no trace in checkpoints."""

from argparse import Namespace

import pytest
import torch
from omegaconf import OmegaConf
from torch._dynamo.utils import counters

from fairseq_poolingformer.attention import Masks
from fairseq_poolingformer.char_lm.models import CharLanguageModel
from fairseq_poolingformer.models import compiled
from tests.models import tiny_bart
from tests.models.tiny_roberta import PAD, build, sentences

SIZES = [
    *("--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "24", "--encoder-attention-heads", "2"),
    *("--window-size", "4", "--pooled-layers", "none", "--dropout", "0", "--attention-dropout", "0"),
]


@pytest.fixture
def graphs(monkeypatch):
    """The number of Dynamo's graphs, which run eagerly after autograd has split them."""
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **how: real(function, **(how | {"backend": "aot_eager"})))
    compiled._graphs.cache_clear()
    torch.compiler.reset()
    counters.clear()
    yield lambda: counters["stats"]["unique_graphs"]
    compiled._graphs.cache_clear()
    torch.compiler.reset()


def train(folder, *flags, batches, layers):
    """The losses of each update of a model and of its compiled twin; padding and the number of global tokens vary."""
    losses = []
    for more in ((), ("--compile-layers",)):
        _, model = build(folder, *SIZES, "--encoder-layers", str(layers), *flags, *more)
        optimizer = torch.optim.Adam(model.train().parameters(), lr=1e-3)
        losses.append([])
        for number, lengths in enumerate(batches):
            tokens = sentences(lengths, seed=number)
            chosen = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(number)) < 0.1
            logits, _ = model(tokens, global_mask=chosen & (tokens != PAD))
            loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens, ignore_index=PAD)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    return losses


EPOCH = [[length, length - 3 * (length % 2)] for length in range(20, 160, 7)]


@pytest.mark.full
@pytest.mark.parametrize(
    ("flags", "count"),
    [
        (("--ldconv-heads", "2", "--separate-global-projections", "--checkpoint-activations"), 4),
        (("--pool-merge", "softmax"), 2),
    ],
)
def test_a_graph_serves_all_lengths(folder, graphs, flags, count):
    """20 lengths have one with padding and one without, and as many without gradients for recomputation."""
    eager, by_graphs = train(folder, "--pooled-layers", "0-1", *flags, batches=EPOCH, layers=2)
    assert len(EPOCH) == 20
    assert graphs() == count
    torch.testing.assert_close(eager, by_graphs, atol=1e-5, rtol=0)


@pytest.mark.full
def test_single_rows_have_a_graph_of_their_own(folder, graphs):
    train(folder, batches=[[20], [27, 24], [34], [41, 38, 40]], layers=1)
    assert graphs() == 2


def test_dynamos_limit_is_an_error(folder, graphs):
    with (
        torch._dynamo.config.patch(recompile_limit=1),
        pytest.raises(
            RuntimeError, match=r"^--compile-layers: torch\.compile gave up on \w+ \(Dynamo recompile limit .*\); leave"
        ),
    ):
        train(folder, batches=[[20, 20], [20, 17]], layers=1)
    assert graphs() == 1


@pytest.mark.full
def test_twenty_updates_by_inductor_have_the_losses_of_eager_ones(folder):
    torch.compiler.reset()
    eager, by_graphs = train(folder, "--pooled-layers", "0", batches=[[33, 30], [40, 37]] * 10, layers=1)
    torch.compiler.reset()
    assert eager[0] - eager[-1] > 0.1
    torch.testing.assert_close(eager, by_graphs, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--relative-attention", "c2p", "--max-relative-positions", "16"], "--relative-attention, whose scores"),
        (["--offload-activations"], "--offload-activations"),
        (["--ddp-backend", "fully_sharded"], "--ddp-backend fully_sharded"),
        (["--checkpoint-activations", "--compile-layers", "reduce-overhead"], "--checkpoint-activations"),
        (["--update-freq", "2", "--compile-layers", "reduce-overhead"], "an --update-freq that is not 1"),
    ],
)
def test_what_does_not_go_together_is_refused(folder, flags, reason):
    with pytest.raises(ValueError, match=rf"^--compile-layers [\w-]+ and {reason}.*: leave one out$"):
        build(folder, *SIZES, "--compile-layers", *flags)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_the_mode_is_torch_compiles(folder, monkeypatch, mode):
    calls = []
    monkeypatch.setattr(torch, "compile", lambda function, **how: calls.append(how) or function)
    compiled._graphs.cache_clear()
    _, model = build(folder, *SIZES, "--encoder-layers", "1", "--compile-layers", mode)
    model.train()(sentences([9, 7]))
    compiled._graphs.cache_clear()
    assert calls == [{"fullgraph": True, "dynamic": True, "mode": mode}]


def test_character_models_do_not_have_it(folder, capsys):
    with pytest.raises(SystemExit):
        tiny_bart.parse(folder, "--compile-layers", arch="gaa_lm", task="char_lm")
    assert "error: unrecognized arguments: --compile-layers" in capsys.readouterr().err  # patched: and whose it is
    with pytest.raises(ValueError, match=r"^gaa_lm has no setting compile_layers: give the names of its flags$"):
        CharLanguageModel.build_model(OmegaConf.create({"_name": "gaa_lm", "compile_layers": "default"}), None)


def test_names_are_those_of_an_eager_model_and_checkpoints_have_no_flag(folder):
    task, plain = build(folder, *SIZES)
    settings = {**vars(plain.args), "compile_layers": "default"}
    by_flag, by_hydra = (
        Namespace(**settings),
        OmegaConf.create({"_name": "poolingformer_roberta_tiny", "pooled_layers": "none", "compile_layers": "default"}),
    )
    for cfg in (by_flag, by_hydra):
        model = task.build_model(cfg)
        assert "compile_layers" not in cfg
        assert model.encoder.sentence_encoder.compile_layers == "default"
    assert list(task.build_model(Namespace(**settings)).state_dict()) == list(plain.state_dict())


def test_slots_are_rounded_up_and_show_the_same_tokens():
    generator = torch.Generator().manual_seed(1)
    for count, slots in ((0, 2), (1, 2), (2, 2), (3, 4), (5, 8)):
        mask = torch.zeros(2, 30, dtype=torch.bool)
        mask[0, torch.randperm(30, generator=generator)[:count]] = True
        settled = Masks(mask, torch.arange(30).expand(2, 30) > 24).settled()
        tokens = settled.global_keys
        assert tokens.index.shape == (2, slots)
        assert tokens.index[0][~tokens.unused[0]].tolist() == mask[0].nonzero()[:, 0].tolist()
        assert tokens.unused[1].all()
        hidden = {name for part in (settled, settled.without_global_queries) for name in vars(part)}
        assert {"hidden", "hidden_globals", "without_globals", "global_keys"} <= hidden
