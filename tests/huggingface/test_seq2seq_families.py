"""Every family of encoders with a decoder, beside transformers' own class with the same weights and dense attention."""

import pytest
import torch
from transformers import BartConfig, MarianConfig, MBartConfig, MT5Config, PegasusConfig, T5Config

from fairseq_poolingformer import huggingface
from fairseq_poolingformer.attention import recorded_weights
from fairseq_poolingformer.cli.from_short import class_name
from fairseq_poolingformer.huggingface.families import FAMILIES
from tests.huggingface import test_families
from tests.huggingface.test_bart import LEVELS, MERGED, WIDE
from tests.huggingface.test_families import enlarge

SIZES = {"vocab_size": 70, "d_model": 24, "encoder_layers": 3, "encoder_ffn_dim": 40, "encoder_attention_heads": 4}
SIZES |= {"decoder_layers": 2, "decoder_ffn_dim": 56, "decoder_attention_heads": 3, "max_position_embeddings": 30}
SIZES |= {"pad_token_id": 1, "decoder_start_token_id": 2, "eos_token_id": 2, "attn_implementation": "eager"}
T5 = {"vocab_size": 70, "d_model": 24, "d_kv": 6, "d_ff": 40, "num_layers": 3, "num_decoder_layers": 2, "num_heads": 4}
T5 |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "pad_token_id": 1}
T5 |= {"decoder_start_token_id": 1, "eos_token_id": 2, "attn_implementation": "eager"}
HEADS = ("Model", "ForConditionalGeneration", "ForSequenceClassification", "ForQuestionAnswering")
CONFIGS = {  # model_type -> configuration, the start of the names of our classes, and their ends
    "bart": (BartConfig, {}, "Bart", HEADS),
    "mbart": (MBartConfig, {"scale_embedding": True}, "MBart", HEADS),
    "pegasus": (PegasusConfig, {"scale_embedding": True}, "Pegasus", HEADS[:2]),
    "marian": (MarianConfig, {}, "Marian", ("Model", "MTModel")),
    "marian-unshared": (
        MarianConfig,
        {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 71},
        "Marian",
        ("MTModel",),
    ),
    "t5": (T5Config, T5, "T5", ("EncoderModel", *HEADS[:2])),
    "mt5": (MT5Config, T5, "T5", HEADS[1:2]),
    "t5-gated": (T5Config, {**T5, "feed_forward_proj": "gated-gelu", "d_kv": 5}, "T5", HEADS[1:2]),
}
EVERY = pytest.mark.parametrize("kind", CONFIGS)
BOTH = pytest.mark.parametrize(("kind", "head"), [(kind, head) for kind, row in CONFIGS.items() for head in row[3]])


def ours(kind, head):
    return getattr(huggingface, f"Poolingformer{CONFIGS[kind][2]}{head}")


def short(kind, head):
    config_class, changes, *_ = CONFIGS[kind]
    torch.manual_seed(1)
    model = (
        ours(kind, head)
        .short_classes[kind.partition("-")[0]](config_class(**({} if "d_kv" in changes else SIZES) | changes))
        .double()
        .eval()
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * (0.1 if "norm" in name.lower() else 0.2))
    return model


def inputs(head):
    torch.manual_seed(2)
    tokens = torch.randint(4, 70, (3, 20))
    for row, length in enumerate((20, 13, 6)):
        tokens[row, length - 1], tokens[row, length:] = 2, 1
    given = {"input_ids": tokens, "attention_mask": tokens.ne(1).long()}
    if head == "ForSequenceClassification":
        return given | {"labels": torch.tensor([0, 1, 1])}
    if head == "ForQuestionAnswering":
        return given | {"start_positions": torch.tensor([1, 2, 3]), "end_positions": torch.tensor([4, 4, 4])}
    if head == "EncoderModel":
        return given
    targets = torch.randint(4, 70, (3, 9))
    return given | ({"decoder_input_ids": targets} if head == "Model" else {"labels": targets})


def loss_of(output, real):
    """The loss, or of a model without one a sum over the decoder's states, or the real tokens'."""
    if "loss" in output:
        return output.loss
    states = output.last_hidden_state
    return (states[real] if states.shape[:2] == real.shape else states).sin().sum()


@BOTH
def test_with_wide_windows_it_is_transformers_own_model(kind, head):
    theirs = short(kind, head)
    merged = MERGED | {"pooled_layers": "0-2"} if head != HEADS[0] else WIDE
    long = ours(kind, head).from_short(theirs, max_position_embeddings=62, **merged)
    given = inputs(head)
    real, gradients = given["attention_mask"].bool(), []
    expected, found = theirs(**given), long(**given)
    for name, value in expected.items():
        if torch.is_tensor(value):
            where = real if value.shape[:2] == real.shape and "last" in name else ...
            torch.testing.assert_close(found[name][where], value[where], rtol=0, atol=1e-12)
    for model, output in ((theirs, expected), (long, found)):
        loss_of(output, real).backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    assert len(gradients[0]) > 20
    for name, value in gradients[0].items():
        grad = gradients[1][name][: len(value)] if "embed_positions" in name else gradients[1][name]
        torch.testing.assert_close(grad, value, rtol=0, atol=1e-12 * max(1, value.abs().max().item()))


@BOTH
def test_both_levels_are_the_dense_ones(kind, head):
    found = ours(kind, head).from_short(short(kind, head), max_position_embeddings=62, **LEVELS)
    enlarge(found)
    settings = {**found.config.to_dict(), "attention_backend": "reference"}
    expected = type(found)(type(found.config)(**settings)).double().eval()
    expected.load_state_dict(found.state_dict())
    real, results = inputs(head)["attention_mask"].bool(), []
    for model in (found, expected):
        output = model(**inputs(head), output_attentions=True)
        loss_of(output, real).backward()
        results.append([loss_of(output, real), *(p.grad for p in model.parameters() if p.grad is not None)])
    assert len(results[0]) == len(results[1]) > 20
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11 * max(1, other.abs().max().item()))
    attentions = output.attentions if head == "EncoderModel" else output.encoder_attentions
    assert [weights.level_two is None for weights in attentions] == [True, False, False]
    with torch.no_grad(), recorded_weights(expected) as recorded:
        expected(**inputs(head))
    torch.testing.assert_close(tuple(recorded.values()), attentions, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["pegasus", "marian"])
@torch.no_grad()
def test_computed_positions_are_computed_for_longer_inputs(kind, monkeypatch):
    """Bit for bit transformers' own, and without its loop over all numbers."""
    head = CONFIGS[kind][3][1]
    theirs = short(kind, head)
    loop = type(theirs.model.encoder.embed_positions).create_weight
    monkeypatch.delattr(type(theirs.model.encoder.embed_positions), "create_weight")
    long = ours(kind, head).from_short(theirs, max_position_embeddings=62, **WIDE)
    table = long.model.encoder.embed_positions
    assert not table.weight.requires_grad
    assert torch.equal(table.weight, loop(table).double())
    assert table.weight.shape == (62, 24)
    assert long.model.decoder.embed_positions.weight.shape == (30, 24)
    with pytest.raises(ValueError, match="random_position_offsets trains learned positions"):
        ours(kind, head).from_short(theirs, random_position_offsets=True)


def test_half_precision_is_as_transformers_loads_it(tmp_path):
    """T5's widest matrices stay in float32, since their results go beyond what float16 holds."""
    short("t5", "Model").save_pretrained(tmp_path / "short")
    theirs = ours("t5", "Model").short_classes["t5"].from_pretrained(tmp_path / "short", dtype=torch.float16)
    long = ours("t5", "Model").from_short(theirs, **LEVELS)
    long.save_pretrained(tmp_path / "long")
    loaded = ours("t5", "Model").from_pretrained(tmp_path / "long", dtype=torch.float16)
    kinds = {name: value.dtype for name, value in long.named_parameters()}
    assert kinds == {name: value.dtype for name, value in loaded.named_parameters()}
    assert {dtype for name, dtype in kinds.items() if name.endswith("wo.weight")} == {torch.float32}
    assert kinds["shared.weight"] == torch.float16


@pytest.mark.parametrize("head", ["ForSequenceClassification", "ForQuestionAnswering"])
@torch.no_grad()
def test_a_decoder_that_reads_the_input_takes_what_the_encoder_takes(head):
    model = ours("bart", head).from_short(short("bart", head), max_position_embeddings=62, **LEVELS)
    assert model.config.max_decoder_position_embeddings == 62
    given = inputs(head)
    given["input_ids"] = torch.cat([given["input_ids"][:, :1]] * 42 + [given["input_ids"]], 1)
    given["attention_mask"] = given["input_ids"].ne(1).long()
    assert model(**given).loss.isfinite()
    less = ours("bart", head).from_short(short("bart", head), max_decoder_position_embeddings=40, **LEVELS)
    assert less.config.max_decoder_position_embeddings == 40
    given["attention_mask"] = given["attention_mask"].flip(1)
    with pytest.raises(ValueError, match="this head takes padding on the right"):
        model(**given)


@pytest.mark.parametrize("kind", ["bart", "mbart"])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_classifier_has_as_many_classes_as_were_saved(kind, classes, tmp_path):
    head = ours(kind, "ForSequenceClassification")
    head(head.config_class(**SIZES, pooled_layers="1", num_labels=classes)).save_pretrained(tmp_path)
    assert head.from_pretrained(tmp_path).config.num_labels == classes


@torch.no_grad()
def test_an_output_matrix_of_its_own_stays_one(tmp_path):
    """As transformers leaves it, where a checkpoint has two: T5 1.1 and Flan-T5."""
    theirs = short("t5", "ForConditionalGeneration")
    theirs.lm_head.weight = torch.nn.Parameter(torch.randn_like(theirs.shared.weight))
    long = ours("t5", "ForConditionalGeneration").from_short(theirs, **WIDE)
    given = inputs("ForConditionalGeneration")
    expected = theirs(**given).logits
    torch.testing.assert_close(long(**given).logits, expected, rtol=0, atol=1e-12)
    long.save_pretrained(tmp_path)
    torch.testing.assert_close(type(long).from_pretrained(tmp_path)(**given).logits, expected, rtol=0, atol=1e-12)


@torch.no_grad()
def test_t5_reads_any_length_and_writes():
    """Beyond the distances of its buckets, and beyond any table's rows; global tokens are those of the encoder."""
    theirs = short("t5", "ForConditionalGeneration")
    settings = {"window_size": "all", "pooled_layers": "none", "max_position_embeddings": 200}
    long = ours("t5", "ForConditionalGeneration").from_short(theirs, **settings)
    tokens = torch.randint(4, 70, (2, 200))
    written = [model.generate(tokens, max_length=8, min_length=8, num_beams=2) for model in (theirs, long)]
    assert torch.equal(*written)
    narrow = {"window_size": "2", "pooled_layers": "none", "global_tokens": 0}
    narrow = ours("t5", "EncoderModel").from_short(theirs, **narrow)
    chosen = torch.zeros_like(tokens)
    chosen[:, 50] = 1
    alone, seen = narrow(tokens)[0], narrow(tokens, global_attention_mask=chosen)[0]
    assert (alone[:, 199] != seen[:, 199]).any()
    gated = short("t5-gated", "ForConditionalGeneration")
    with pytest.raises(ValueError, match="pool_mix and pool_share_weights need heads that are together as wide as"):
        ours("t5", "ForConditionalGeneration").from_short(gated, pool_mix=True)


@pytest.mark.parametrize("kind", ["pegasus", "marian", "t5"])
def test_trainer_peft_and_checkpointing(kind):
    head = CONFIGS[kind][3][-1]
    model = ours(kind, head).from_short(short(kind, head), **LEVELS).eval()
    given = inputs(head)
    loss = model(**given).loss
    torch.testing.assert_close(model(**given, num_items_in_batch=54).loss, loss / 2)
    loss.backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.gradient_checkpointing_enable()
    for module in model.train().modules():
        for name in ("p", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    model.zero_grad()
    model(**given).loss.backward()
    parameters = dict(model.named_parameters())
    for name, value in expected.items():
        torch.testing.assert_close(parameters[name].grad, value, rtol=0, atol=1e-10)
    peft = pytest.importorskip("peft")
    adapted = peft.get_peft_model(model, peft.LoraConfig())
    adapted(**given).loss.backward()
    assert any("pooled_q_proj" in name for name, p in adapted.named_parameters() if p.requires_grad)


@pytest.mark.parametrize(
    ("kind", "head", "arguments", "end"),
    [
        ("t5", "ForConditionalGeneration", [], "ForConditionalGeneration"),
        ("marian", "MTModel", [], "MTModel"),
        ("bart", "Model", [], "ForConditionalGeneration"),
        ("bart", "ForSequenceClassification", [], "ForSequenceClassification"),
        ("bart", "Model", ["--head", "question-answering"], "ForQuestionAnswering"),
    ],
)
def test_the_head_on_the_command_line(kind, head, arguments, end):
    config = short(kind, head).config
    config.architectures = [f"{CONFIGS[kind][2]}{head}"]
    start, found = class_name(config, arguments[-1] if arguments else None)
    assert getattr(huggingface, start + found) is ours(kind, end)


def test_every_family_has_a_tiny_model_in_the_tests():
    """Here, in test_families.py, or in test_modernbert.py; the ends of its classes' names are those that are tested."""
    tested = {kind: set(ends) for kind, (*_, ends) in CONFIGS.items()}
    tested |= {kind: set(test_families.HEADS) for kind in (*test_families.CONFIGS, "modernbert")}
    assert {family.name.lower(): set(family.ends) for family in FAMILIES.values()}.items() <= tested.items()
