"""Poolingformer-BART: its architectures, its equality with BART, and what padding may not do."""

import copy

import pytest
import torch
from fairseq.models.bart import BARTModel

from fairseq_poolingformer.attention import Pooling, Window
from tests.models.tiny_bart import BOS, EOS, PAD, SIZES, build, parse


def sentences(lengths, padded_to=None):
    """Rows of random words, the same for the same length whatever is beside them."""
    tokens = torch.full((len(lengths), padded_to or max(lengths)), PAD)
    for row, length in enumerate(lengths):
        words = torch.randint(4, 34, (length - 2,), generator=torch.Generator().manual_seed(100 + length))
        tokens[row, :length] = torch.cat([torch.tensor([BOS]), words, torch.tensor([EOS])])
    return tokens


def shifted(target):
    previous = target.roll(1, dims=1)
    previous[:, 0] = EOS
    return previous


@pytest.mark.parametrize(
    ("arch", "layers", "width", "pooled"),
    [
        ("poolingformer_bart_large", 12, 1024, range(6, 12)),
        ("poolingformer_bart_base", 6, 768, range(3, 6)),
        ("led_bart_large", 12, 1024, ()),
        ("led_bart_base", 6, 768, ()),
    ],
)
def test_architectures_are_the_papers(folder, arch, layers, width, pooled, monkeypatch):
    """12 + 12 layers, w1 128, w2 512, κ 5, ξ 4, LDConv in layers 6–11 (thesis §3.1); LED with one-sided 512."""
    monkeypatch.setattr("fairseq.models.bart.model.init_bert_params", lambda module: None)  # no values on meta
    with torch.device("meta"):
        _, model = build(folder, arch=arch)
    attentions = [layer.self_attn for layer in model.encoder.layers]
    assert (len(attentions), len(model.decoder.layers)) == (layers, layers)
    assert (model.encoder.embed_tokens.embedding_dim, attentions[0].num_heads) == (width, width // 64)
    led = arch.startswith("led")
    for number, attention in enumerate(attentions):
        assert attention.window == Window(512 if led else 128)
        assert (attention.global_q_proj is not None) == led
        if number in pooled:
            assert (attention.pooled_window, attention.pooling) == (Window(512), Pooling(5, 4, "grid"))
            assert (attention.pool_type, attention.pooled_k_pool_weight.shape) == ("ldconv", (5, width))
        else:
            assert attention.pooling is None
    assert (model.max_positions(), model.encoder.global_tokens) == ((4096, 1024), 1)


def test_every_choice_is_a_flag(folder):
    _, model = build(
        *(folder, *SIZES, "--window-size", "3,4,5", "--pooled-window-size", "9", "--pooled-layers", "0,2"),
        *("--pool-kernel-size", "3", "--pool-stride", "2", "--pool-type", "mean-ldconv", "--pool-alignment", "query"),
        *("--pool-mix", "--ldconv-heads", "2", "--pool-share-weights", "--global-tokens", "3"),
        *("--separate-global-projections", "--max-source-positions", "77", "--attention-backend", "reference"),
    )
    attentions = [layer.self_attn for layer in model.encoder.layers]
    assert [attention.window.left for attention in attentions] == [3, 4, 5]
    assert attentions[1].pooling is None
    for attention in attentions[::2]:
        assert (attention.pooling, attention.pooled_window) == (Pooling(3, 2, "query"), Window(9))
        assert attention.mix
        assert attention.pooled_q_proj is None
        assert attention.pooled_k_pool_weight.shape == (6, 32)
    assert attentions[2].global_v_proj is not None
    assert (attentions[2].backend, model.encoder.global_tokens) == ("reference", 3)
    assert model.encoder.max_positions() == 77


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--pooled-layers", "2-7"], "layers 0 to 2"),
        (["--ldconv-heads", "3"], "ldconv_heads"),
        (["--quant-noise-pq", "0.1"], "quant-noise-pq"),
        (["--cross-self-attention"], "cross-self-attention"),
        (["--separate-global-projections", "--global-tokens", "0"], "never use"),
        (["--left-pad-source"], "padded on the right"),
    ],
)
def test_bad_flags_are_named(folder, flags, word):
    with pytest.raises(ValueError, match=word):
        build(folder, *SIZES, *flags)


@pytest.mark.parametrize(
    ("retained", "modules", "same"),
    [
        (False, None, (True, True)),
        (True, None, (False, False)),
        (True, ["TwoLevelAttention"], (False, True)),
        (True, ["CausalSelfAttention"], (True, False)),
        (True, ["CrossAttention"], (True, False)),
    ],
)
@torch.no_grad()
def test_retained_dropout_is_that_of_the_attention_too(folder, retained, modules, same):
    """As in fairseq's own attention: in the encoder, and in both attentions of a decoder that scores whole targets."""
    _, model = build(folder, *SIZES, "--dropout", "0", "--attention-dropout", "0.5", "--window-size", "4")
    source, target = sentences([50, 31]), sentences([9, 12])
    encoded = model.encoder(source)
    model.make_generation_fast_(retain_dropout=retained, retain_dropout_modules=modules)
    outputs = [(model.encoder(source)["encoder_out"][0], model.decoder(shifted(target), encoded)[0]) for _ in "ab"]
    assert tuple(map(torch.equal, *outputs)) == same


@torch.no_grad()
def test_retained_dropout_is_that_of_relative_positions_too(folder):
    _, model = build(folder, *SIZES, "--dropout", "0.5", "--attention-dropout", "0", "--relative-attention", "c2p,p2c")
    model.make_generation_fast_(retain_dropout=True)
    layer, table = model.encoder.layers[0], model.encoder.relative_positions.weight
    assert not torch.equal(*(layer.relative_projections(table, table).c2p for _ in "ab"))


def test_equals_bart_when_the_window_is_wide_and_level_two_is_off(folder):
    flags = [*SIZES, "--max-source-positions", "64"]
    task, ours = build(folder, *flags, "--window-size", "64", "--pooled-layers", "none", "--global-tokens", "0")
    theirs = BARTModel.build_model(parse(folder, *flags), task).eval()
    theirs.load_state_dict(ours.state_dict())
    source, target = sentences([50, 31]), sentences([9, 12])
    with torch.no_grad():
        expected, _ = theirs(source, None, shifted(target))
        actual, _ = ours(source, None, shifted(target))
    real = target != PAD
    torch.testing.assert_close(actual[real], expected[real], atol=2e-6, rtol=0)


@pytest.mark.parametrize(
    "flags", [[], ["--separate-global-projections"], ["--pool-type", "max"], ["--pool-alignment", "query"]]
)
def test_padding_and_neighbours_change_no_bit(folder, flags):
    _, model = build(
        folder, *SIZES, "--window-size", "8", "--pooled-window-size", "20", "--pooled-layers", "1-2", *flags
    )
    with torch.no_grad():
        alone = model(sentences([45]), None, shifted(sentences([17])))[0]
        source, target = sentences([45, 300, 12]), sentences([17, 40, 8])
        together = model(source, None, shifted(target))[0]
        padded = model(sentences([45], padded_to=128), None, shifted(sentences([17])))[0]
    assert torch.equal(together[0, :17], alone[0])
    assert torch.equal(padded, alone)


def test_left_padding_is_understood(folder):
    _, model = build(folder, *SIZES, "--window-size", "5", "--global-tokens", "2", "--pooled-layers", "none")
    source = sentences([20])
    left = torch.cat([torch.full((1, 7), PAD), source], dim=1)
    with torch.no_grad():
        a = model.encoder(source)["encoder_out"][0]
        b = model.encoder(left)["encoder_out"][0][7:]
    torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


@pytest.mark.parametrize("flags", [[], ["--attention-dropout", "0.3", "--dropout", "0.2"]])
def test_activation_checkpointing_changes_no_gradient(folder, flags):
    results, runs = [], []
    for extra in ([], ["--checkpoint-activations"]):
        _, model = build(folder, *SIZES, *flags, "--window-size", "4", "--pooled-layers", "0-2", *extra)
        model.train()
        layers = [model.encoder.layers[1].fc1, model.decoder.layers[0].fc1]
        for layer in layers:
            layer.register_forward_pre_hook(lambda module, inputs: runs.append(module))
        torch.manual_seed(5)
        logits, _ = model(sentences([50, 33]), None, shifted(sentences([9, 7])))
        logits.pow(2).mean().backward()
        results.append({n: p.grad for n, p in model.named_parameters()})
        assert [runs.count(layer) for layer in layers] == ([2, 2] if extra else [1, 1])
    assert all(g is not None for g in results[0].values()), "DDP needs a gradient for every parameter"
    torch.testing.assert_close(*results, atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_close_and_finite(folder, dtype):
    _, model = build(folder, *SIZES, "--window-size", "6")
    source, target = sentences([80, 11]), sentences([9, 7])
    with torch.no_grad():
        exact = model(source, None, shifted(target))[0]
        half = copy.deepcopy(model).to(dtype)(source, None, shifted(target))[0].float()
    real = target != PAD
    assert torch.isfinite(half[real]).all()
    assert (half - exact)[real].abs().max() < 0.05 * exact[real].abs().max() + 0.02


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("encoder.layers.1.fc2.weight", "encoder layer 1"),
        ("decoder.layers.0.fc2.weight", "decoder layer 0"),
        ("encoder.embed_tokens.weight", "the encoder's embeddings"),
        ("decoder.output_projection.weight", "the decoder's output projection"),
    ],
)
def test_the_first_layer_whose_outputs_are_not_finite_is_named(folder, place, name):
    """Weights that are finite and huge, of which a search made an assertion, and a validation a loss of NaN."""
    _, model = build(folder)
    model.eval()
    part = model.get_submodule(place.removesuffix(".weight"))
    part.weight = torch.nn.Parameter(torch.full_like(part.weight, 1e38))  # also where another part has the same one
    tokens = sentences([9, 5])
    with pytest.raises(ValueError, match=f"the outputs of {name} are NaN or infinite"):
        model(tokens, None, shifted(tokens))
    model.train()
    model(tokens, None, shifted(tokens))
