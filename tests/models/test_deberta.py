"""The DeBERTa fusion as a model: what layers share, pretrained weights, what is refused."""

import logging

import pytest
import torch
from fairseq.models.roberta import RobertaModel

from fairseq_poolingformer.weights.loading import resize_relative_positions
from tests.models import tiny_bart
from tests.models.tiny_roberta import SIZES, build, parse, sentences

DEBERTA = "poolingformer_deberta_tiny"
SMALL = [*SIZES, "--window-size", "6", "--max-relative-positions", "8", "--global-relative-positions", "5"]
P = "encoder.sentence_encoder.relative_positions.weight"
P_G = "encoder.sentence_encoder.global_relative_positions.weight"
BUCKET = "encoder.sentence_encoder.global_relative_positions.tokens_per_row"
ABSOLUTE = "encoder.sentence_encoder.embed_positions.weight"


def fusion(folder, *flags, seed=0, spread=0.3):
    """A model whose positions matter: random ones are close to 0."""
    _, model = build(folder, *SMALL, "--max-positions", "50", *flags, arch=DEBERTA, seed=seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "relative" in name:
                parameter.add_(spread * torch.randn_like(parameter))
    return model


def test_flags_choose_positions_and_epsilon(folder):
    model = fusion(folder, "--absolute-positions", "--layer-norm-eps", "1e-7", "--global-tokens", "0")
    encoder = model.encoder.sentence_encoder
    assert encoder.embed_positions.weight.shape == (52, 32)
    assert encoder.global_relative_positions is None
    assert encoder.layers[1].relative_projections.global_k_proj is None
    epsilons = {module.eps for module in model.modules() if isinstance(module, torch.nn.LayerNorm)}
    assert epsilons == {1e-7}
    _, roberta = build(folder, *SIZES, "--relative-attention", "c2p", "--no-absolute-positions")
    assert roberta.encoder.sentence_encoder.embed_positions is None
    assert roberta.encoder.sentence_encoder.layers[0].relative_projections.q_proj is None
    assert {m.eps for m in roberta.modules() if isinstance(m, torch.nn.LayerNorm)} == {1e-5}


def test_the_tables_gradient_is_the_sum_of_the_layers(folder):
    model = fusion(folder).double()
    encoder, tokens = model.encoder.sentence_encoder, sentences([40, 23])
    wanted = torch.randn(2, 40, 32, dtype=torch.float64)
    (model(tokens, features_only=True)[0] * wanted).sum().backward()
    shared = [encoder.relative_positions.weight.grad, encoder.global_relative_positions.weight.grad]
    tables = []

    def with_copied_tables(layer, arguments, keywords):
        copies = {n: keywords[n].detach().clone().requires_grad_() for n in keywords if "relative" in n}
        tables.append([copies["relative_positions"], copies["global_relative_positions"]])
        return arguments, keywords | copies

    hooks = [layer.register_forward_pre_hook(with_copied_tables, with_kwargs=True) for layer in encoder.layers]
    (model(tokens, features_only=True)[0] * wanted).sum().backward()
    assert len(hooks) == len(tables) == 3
    for total, parts in zip(shared, zip(*tables, strict=True), strict=True):
        assert all(part.grad.abs().max() > 1e-3 for part in parts)
        torch.testing.assert_close(total, sum(part.grad for part in parts))


@pytest.mark.parametrize("flags", [["--checkpoint-activations"], ["--offload-activations"]])
def test_checkpointed_activations_change_no_gradient(folder, flags):
    results = []
    for more in ([], flags):
        model = fusion(folder, *more, "--attention-dropout", "0.3").train()
        torch.manual_seed(5)
        model(sentences([40, 23]))[0].square().sum().backward()
        results.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert {P, P_G} < results[0].keys()
    torch.testing.assert_close(*results)


def test_every_parameter_has_a_gradient(folder):
    """DDP needs one, whatever the products, with and without global tokens."""
    for products in ("c2p", "p2c", "c2p,p2c"):
        for globals_ in ("0", "1"):
            model = fusion(folder, "--relative-attention", products, "--global-tokens", globals_)
            model(sentences([20]))[0].sum().backward()
            assert all(p.grad is not None for p in model.parameters())


def test_dropped_layers_and_another_encoder(folder, tmp_path):
    model = fusion(folder, "--encoder-layerdrop", "0.5").train()
    for _ in range(3):
        model(sentences([20]))[0].sum().backward()
    assert model.encoder.sentence_encoder.relative_positions.weight.grad is not None
    data = tiny_bart.write_data_folder(tmp_path / "bart")
    _, bart = tiny_bart.build(data, *tiny_bart.SIZES, "--relative-attention", "c2p,p2c", "--window-size", "4")
    target = torch.tensor([[2, 5, 6]])
    bart(torch.tensor([[0, 5, 6, 7, 2]]), None, target)[0].sum().backward()
    assert bart.encoder.relative_positions.weight.grad.abs().max() > 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--window-size", "4,4,9"], r"--window-size 9 \(layer 2\) reaches beyond --max-relative-positions 8"),
        (["--max-relative-positions", "0"], "--max-relative-positions must be 1 or more"),
        (["--separate-global-projections"], "do not go together"),
        (["--relative-attention", "none"], "without any positions: add --relative-attention c2p,p2c"),
        (
            ["--random-position-offsets"],
            "--random-position-offsets is about learned positions, .* leave it out, or give --absolute-positions",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(folder, flags, message):
    with pytest.raises(ValueError, match=message):
        fusion(folder, *flags)


def test_flags_without_effect_are_named(folder, caplog):
    build(folder, *SIZES)
    fusion(folder)
    assert "does nothing" not in caplog.text
    build(folder, *SIZES, "--max-relative-positions", "300")
    assert "--max-relative-positions does nothing without --relative-attention" in caplog.text
    assert "--global-relative-positions" not in caplog.text
    build(folder, *SIZES, "--global-relative-positions", "0")
    assert "--global-relative-positions does nothing without --relative-attention" in caplog.text


def test_inputs_that_make_no_sense_are_refused(folder):
    model = fusion(folder)
    with pytest.raises(ValueError, match="a row has 51 tokens, the model takes 50"):
        model(sentences([51]))
    model(sentences([50], padded_to=56))
    tokens, global_mask = sentences([20]), torch.arange(20)[None] < 3
    for windows in ("6", "all,all,6"):
        with pytest.raises(ValueError, match="global tokens have no relative positions"):
            fusion(folder, "--global-tokens", "0", "--window-size", windows)(tokens, global_mask=global_mask)
    for windows in ("all", "all, all,all"):
        fusion(folder, "--global-tokens", "0", "--window-size", windows)(tokens, global_mask=global_mask)


def test_tables_for_other_distances():
    fine = torch.arange(-3.0, 3.0)[:, None]  # each row holds its distance, k = 3
    assert resize_relative_positions(fine, 1, 4).flatten().tolist() == [-2, -1, 0, 1]
    assert resize_relative_positions(fine, 1, 10).flatten().tolist() == [-3, -3, -3, -2, -1, 0, 1, 2, 2, 2]
    coarse = torch.tensor([-2.0, -1.0, 0.0, 1.0])[:, None]  # -8 … -5, -4 … -1, 0 … 3, 4 … 7
    assert resize_relative_positions(coarse, 4, 8, 2).flatten().tolist() == [-2, -2, -1, -1, 0, 0, 1, 1]
    assert resize_relative_positions(coarse, 4, 4, 8).flatten().tolist() == [-2, -2, 0, 1]
    assert resize_relative_positions(fine, 1, 4, 3).flatten().tolist() == [-3, -2, 1, 2]


def test_a_roberta_gives_all_but_positions(folder, caplog):
    task, _ = build(folder, *SIZES)
    state = RobertaModel.build_model(parse(folder, *SIZES, "--max-positions", "20", arch="roberta"), task).state_dict()
    model = fusion(folder)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with caplog.at_level(logging.INFO):
        model.load_state_dict(dict(state), strict=True)
    assert f"(--absolute-positions keeps both): {ABSOLUTE}" in caplog.text
    for name, value in model.state_dict().items():
        new = "relative_" in name or "pooled_" in name
        assert torch.equal(value, before[name] if new else state[name]), name
        assert not new or name in caplog.text
    both = fusion(folder, "--absolute-positions")
    both.load_state_dict(dict(state), strict=True)
    assert torch.equal(both.state_dict()[ABSOLUTE][:22], state[ABSOLUTE])


def test_a_fusion_of_other_lengths_keeps_what_it_has_learnt(folder, caplog):
    short = fusion(folder, "--global-relative-positions", "10")  # of 50 tokens: 5 tokens a row
    long = fusion(folder, "--max-positions", "100", "--max-relative-positions", "12", "--window-size", "6", seed=1)
    with caplog.at_level(logging.INFO):
        long.load_state_dict(short.state_dict(), strict=True)
    assert "20 rows, each of 5 distances -> 10, each of 20" in caplog.text
    trained, loaded = short.state_dict(), long.state_dict()
    assert torch.equal(loaded[P], trained[P][[0, 0, 0, 0, *range(16), 15, 15, 15, 15]])
    assert torch.equal(loaded[P_G], trained[P_G][[0, 0, 0, 3, 7, 11, 15, 19, 19, 19]])  # middles -91, -71, …, 9, 29, …
    assert loaded[BUCKET] == 20
    same = fusion(folder, "--global-relative-positions", "10", seed=2)
    same.load_state_dict(short.state_dict(), strict=True)
    assert all(torch.equal(value, trained[name]) for name, value in same.state_dict().items())


def test_deberta_gives_its_positions_to_global_tokens_too(folder):
    plain = fusion(folder, "--global-tokens", "0", "--window-size", "all", "--pooled-layers", "none")
    model = fusion(folder, seed=1)
    model.load_state_dict(plain.state_dict(), strict=True)
    trained, loaded = plain.state_dict(), model.state_dict()
    assert torch.equal(loaded[P], trained[P])
    assert torch.equal(
        loaded[P_G], trained[P][[0, 0, 0, 0, 2, 12, 15, 15, 15, 15]]
    )  # of ten tokens: middles … -6, 4, 14 …
    for name, value in loaded.items():
        if "relative_projections.global_" in name:
            assert torch.equal(value, trained[name.replace("global_", "")]), name


@pytest.mark.parametrize("flags", [["--window-size", "6"], ["--window-size", "all", "--relative-attention", "c2p"]])
def test_coarse_positions_are_left_out_where_the_model_has_none(folder, caplog, flags):
    trained, model = fusion(folder, *flags), fusion(folder, *flags, "--global-tokens", "0", seed=1)
    with caplog.at_level(logging.INFO):
        model.load_state_dict(trained.state_dict(), strict=True)
    state, loaded = trained.state_dict(), model.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in loaded.items())
    left = state.keys() - loaded.keys()
    assert {P_G, BUCKET} < left
    for name in left:
        assert "global_" in name
        assert name in caplog.text


@pytest.mark.parametrize(
    ("arch", "flags", "message"),
    [
        (DEBERTA, ["--relative-attention", "c2p"], "with .* c2p,p2c --no-absolute-positions, the model .* c2p, which"),
        (DEBERTA, ["--relative-attention", "p2c", "--global-tokens", "0"], "built with --relative-attention p2c,"),
        ("poolingformer_roberta_tiny", [], r"attention none, .* \(poolingformer_deberta_\* has"),
    ],
)
def test_scores_that_the_model_lacks_are_not_lost(folder, arch, flags, message):
    _, model = build(folder, *SMALL, "--max-positions", "50", *flags, arch=arch)
    with pytest.raises(ValueError, match=message):
        model.load_state_dict(fusion(folder).state_dict(), strict=True)


def test_a_product_that_the_checkpoint_lacks_is_new(folder, caplog):
    trained, model = fusion(folder, "--relative-attention", "c2p"), fusion(folder, seed=1)
    with caplog.at_level(logging.INFO):
        model.load_state_dict(trained.state_dict(), strict=True)
    assert "newly initialized: encoder.sentence_encoder.layers.0.relative_projections.q_proj.weight" in caplog.text


def test_freezing_trains_what_roberta_has_not(folder):
    model = fusion(folder, "--freeze-pretrained", "--pretrained-positions", "20")
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trained == {n for n, _ in model.named_parameters() if "relative_" in n or "pooled_" in n}
    assert {P, P_G} < trained
