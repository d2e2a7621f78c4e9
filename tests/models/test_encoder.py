"""Encoder layers call whatever replaces their linear layers: adapters, hooks, parametrizations, quantized layers."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from fairseq_poolingformer.training.optimizers import POOLED as POOLS
from tests.dropped import assert_dropped, zero
from tests.models.tiny_roberta import PAD, SIZES, build, sentences

POOLED = ("--window-size", "4", "--pooled-window-size", "9", "--pooled-layers", "1-2")


def build_encoder(folder, *flags):
    """The layers of a model as one function of a batch, in float64: (encoder, tokens -> features)."""
    _, model = build(folder, *SIZES, *POOLED, "--dropout", "0", "--attention-dropout", "0", *flags)
    encoder = model.encoder.sentence_encoder.double()
    for layer in encoder.layers:  # far from N(0, 0.02²), so that every projection matters
        for name, parameter in layer.named_parameters():
            if "pool_weight" in name:
                nn.init.normal_(parameter)
    return encoder


def features(encoder):
    tokens = sentences([40, 23])
    out = encoder(tokens)["encoder_out"][0].transpose(0, 1)
    return out[tokens != PAD]


def linears(encoder):
    return {
        f"{prefix}.{name}": (parent, name, child)
        for prefix, parent in encoder.layers.named_modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.Linear)
    }


class LowRank(nn.Module):
    """LoRA (Hu et al. 2021); the frozen layer's weight and bias can be read off it, as in the usual libraries."""

    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(0.3 * torch.randn(2, base.in_features, dtype=base.weight.dtype))
        self.up = nn.Parameter(0.3 * torch.randn(base.out_features, 2, dtype=base.weight.dtype))

    weight = property(lambda self: self.base.weight)
    bias = property(lambda self: self.base.bias)

    def forward(self, x):
        return self.base(x) + x @ self.down.t() @ self.up.t()


@pytest.mark.parametrize(
    "flags", [[], ["--pool-type", "mean"], ["--pool-type", "max"], ["--pool-share-weights"], ["--ldconv-heads", "2"]]
)
def test_adapters_give_the_merged_weights_outputs_and_learn(folder, flags):
    merged = build_encoder(folder, *flags)
    adapted = copy.deepcopy(merged)
    torch.manual_seed(3)
    adapters = {}
    for name, (parent, attribute, linear) in linears(adapted).items():
        adapters[name] = LowRank(linear)
        setattr(parent, attribute, adapters[name])
    with torch.no_grad():
        for name, (_, _, linear) in linears(merged).items():
            linear.weight += adapters[name].up @ adapters[name].down
    out, expected = features(adapted), features(merged)
    torch.testing.assert_close(out, expected, atol=1e-10, rtol=0)
    grad = torch.randn_like(expected)
    out.backward(grad)
    expected.backward(grad)
    for name, (_, _, linear) in linears(merged).items():
        up, down, of_weight = adapters[name].up, adapters[name].down, linear.weight.grad
        assert of_weight.abs().max() > 1e-6, name
        torch.testing.assert_close(up.grad, of_weight @ down.t(), atol=1e-9, rtol=0, msg=name)
        torch.testing.assert_close(down.grad, up.t() @ of_weight, atol=1e-9, rtol=0, msg=name)


class Doubled(nn.Module):
    def forward(self, x):
        return 2 * x


CHANGES = {  # each doubles a layer's weight, in effect
    "parametrization": lambda linear: parametrize.register_parametrization(linear, "weight", Doubled()),
    "forward hook": lambda linear: linear.register_forward_hook(lambda module, args, out: 2 * out - module.bias),
    "forward pre-hook": lambda linear: linear.register_forward_pre_hook(lambda module, args: (2 * args[0],)),
}


@pytest.mark.parametrize("change", CHANGES)
@torch.no_grad()
def test_hooks_and_parametrizations_of_every_linear_layer_are_heard(folder, change):
    expected = build_encoder(folder)
    changed = copy.deepcopy(expected)
    for _, _, linear in linears(changed).values():
        CHANGES[change](linear)
    for _, _, linear in linears(expected).values():
        linear.weight *= 2
    torch.testing.assert_close(features(changed), features(expected), atol=1e-10, rtol=0)


@pytest.mark.full
def test_a_compiled_encoder_gives_the_same_numbers(folder):
    """In training, with padding, without dropout, whose masks the compiler draws in another way."""
    torch.compiler.reset()
    flags = ("--encoder-layers", "1", "--pooled-layers", "0", "--activation-dropout", "0")
    relative = ("--relative-attention", "c2p,p2c", "--max-relative-positions", "16")
    encoder = build_encoder(folder, *flags, *relative).train()
    compiled, results = torch.compile(encoder, backend="aot_eager"), []
    for run in (encoder, compiled):
        out = features(run)
        results.append((out, *torch.autograd.grad(out.square().sum(), list(encoder.layers.parameters()))))
    torch.testing.assert_close(*reversed(results), atol=1e-9, rtol=0)
    encoder.eval()
    with torch.no_grad():
        torch.testing.assert_close(features(compiled), features(encoder), atol=1e-10, rtol=0)


@pytest.mark.parametrize("place", ["embedding", "attention", "activation", "feed-forward"])
@torch.no_grad()
def test_layers_drop_elements_in_training(folder, place):
    _, model = build(folder, *SIZES, *POOLED, "--dropout", "0.25", "--attention-dropout", "0")
    encoder = model.encoder.sentence_encoder.eval()
    layer, tokens, inputs = encoder.layers[0], sentences([40, 40]), []
    # of the norms: after the residual connection
    modules = {"embedding": layer, "attention": layer.self_attn_layer_norm, "activation": layer.fc2}
    module = modules.get(place, layer.final_layer_norm)
    module.register_forward_pre_hook(lambda module, arguments: inputs.append(arguments[0]))
    residual = torch.randn(40, 2, layer.embed_dim) if place == "attention" else 0.0
    if place in ("activation", "feed-forward"):
        zero(layer.self_attn.out_proj)
        layer.self_attn_layer_norm.register_forward_hook(lambda module, inputs, output: torch.zeros_like(output))
        torch.nn.init.normal_(layer.fc1.bias)
        if place == "activation":
            layer.activation_dropout_module.p = 0.25

    def elements():
        if place == "embedding":
            encoder(tokens)
        else:
            layer(residual if place == "attention" else torch.randn(40, 2, layer.embed_dim))
        return inputs.pop() - residual

    whole = elements()
    encoder.train()
    assert_dropped(elements, whole, 0.25)


def test_every_layer_has_the_dropout_of_its_flags(folder):
    flags = ("--attention-dropout", "0.3", "--dropout", "0.2", "--relative-attention", "c2p", "--max-positions", "50")
    _, model = build(folder, *SIZES, *POOLED, *flags)
    for layer in model.encoder.sentence_encoder.layers:
        assert (layer.self_attn.dropout, layer.relative_projections.dropout.p) == (0.3, 0.2)


def test_the_first_tokens_that_are_global_are_never_padding(folder):
    encoder = build_encoder(folder, "--global-tokens", "2")
    padding = torch.tensor([[1, 1, 0, 0, 0], [0, 0, 0, 1, 1], [0, 1, 1, 1, 1], [1, 1, 1, 1, 1]], dtype=torch.bool)
    expected = [[0, 0, 1, 1, 0], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]]
    assert encoder.first_tokens(padding).int().tolist() == expected
    assert build_encoder(folder, "--global-tokens", "0").first_tokens(padding) is None


def test_parameters_of_level_two_alone_are_marked_for_their_own_learning_rate(folder):
    """The parameters that --pooled-init starts, and those of pooling."""
    _, model = build(folder, *SIZES, *POOLED)
    marked = {name for name, parameter in model.named_parameters() if getattr(parameter, "param_group", None) == POOLS}
    assert marked == {name for name, _ in model.named_parameters() if "self_attn.pooled_" in name}
    assert len(marked) == 2 * 8
