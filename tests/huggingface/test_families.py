"""Every family of transformers' models with two-level attention: the same tests for all of them.

transformers' own classes with the same weights are the oracle where windows are as wide as the input; a dense
computation is, where they are not.
"""

import pickle

import pytest
import torch
from transformers import AlbertConfig, AlbertModel, BertModel, GPT2Config, GPT2Model, T5Config, T5Model

from fairseq_poolingformer import huggingface
from fairseq_poolingformer.attention import recorded_weights
from fairseq_poolingformer.cli.from_short import made_class
from fairseq_poolingformer.huggingface import classes, short_models
from fairseq_poolingformer.huggingface.attention import EncoderSelfAttention
from fairseq_poolingformer.huggingface.encoders import WithParts
from fairseq_poolingformer.huggingface.families import FAMILIES, LongFamily, family_of
from tests.attention.test_probabilities import dense, expected_weights
from tests.huggingface import tiny_models
from tests.huggingface.tiny_models import (
    BART,
    CONFIGS,
    ENCODER,
    ENCODERS,
    HEADS,
    LENGTHS,
    LEVELS,
    MERGED,
    READERS,
    WIDE,
    config,
    enlarge,
    inputs,
    loss_of,
    ours,
    rolled,
    short,
    without_dropout,
)

pytestmark = pytest.mark.usefixtures("doubles")  # for ModernBERT
EVERY = pytest.mark.parametrize("kind", CONFIGS)
PAIRS = [(kind, head) for kind, (_, heads) in CONFIGS.items() for head in heads]
BOTH = pytest.mark.parametrize(("kind", "head"), PAIRS)


def assert_equal_outputs(actual, expected, real):
    """At real tokens, where an output has one for each."""
    compared = 0
    for name, value in expected.items():
        if torch.is_tensor(value):
            where = real if value.shape[:2] == real.shape else ...
            torch.testing.assert_close(actual[name][where], value[where], rtol=0, atol=1e-12, msg=name)
            compared += 1
    assert compared


def gradients(model):
    """Gradients by transformers' names: q, k and v are one in ModernBERT."""
    grads = {name: p.grad for name, p in model.named_parameters(remove_duplicate=False) if p.grad is not None}
    for name in [name for name in grads if ".attn.q_proj." in name]:
        parts = [grads.pop(name.replace(".q_proj.", f".{letter}_proj.")) for letter in "qkv"]
        grads[name.replace("q_proj", "Wqkv")] = torch.cat(parts)
    return {name.replace(".attn.out_proj", ".attn.Wo"): grad for name, grad in grads.items()}


@BOTH
def test_with_wide_windows_it_is_transformers_own_model(kind, head):
    theirs = short(kind, head)
    merged = MERGED if kind.startswith("modernbert") else MERGED | {"pooled_layers": "0-2"}
    narrow = head not in ("ForMaskedLM", "ForMultipleChoice", "ForSequenceClassification")
    long = ours(kind, head).from_short(theirs, max_position_embeddings=62, **merged if narrow else WIDE)
    poolers = [[name for name in model.state_dict() if "pooler." in name] for model in (theirs, long)]
    assert poolers[0] == poolers[1]
    batch = inputs(kind, head)
    real = batch["attention_mask"].bool()
    expected, actual = theirs(**batch), long(**batch)
    assert_equal_outputs(actual, expected, real)
    loss_of(expected, real).backward()
    loss_of(actual, real).backward()
    actual, expected = gradients(long), gradients(theirs)
    assert actual.keys() == expected.keys()
    assert len(expected) > 15
    for name, value in expected.items():
        grad = actual[name][: len(value)]  # of the positions, without the new ones
        torch.testing.assert_close(grad, value, rtol=0, atol=1e-12 * max(1, value.abs().max().item()), msg=name)


@EVERY
@torch.no_grad()
def test_embeddings_and_positions_of_the_users_own(kind):
    head = CONFIGS[kind][1][0]
    theirs, batch = short(kind, head), inputs(kind, head)
    long = ours(kind, head).from_short(theirs, max_position_embeddings=62, **WIDE)
    real = batch["attention_mask"].bool()
    batch["inputs_embeds"] = theirs.get_input_embeddings()(batch.pop("input_ids"))
    if kind in ENCODERS:
        batch["position_ids"] = 23 - torch.arange(20).expand(4, 20)
    assert_equal_outputs(long(**batch), theirs(**batch), real)


@pytest.mark.parametrize(("kind", "head"), [pair for pair in PAIRS if pair[1] == "Model" or pair[0] not in ENCODERS])
def test_both_levels_are_the_dense_ones(kind, head):
    """Outputs and gradients of the reference, and the weights that it computes."""
    actual = ours(kind, head).from_short(short(kind, head), max_position_embeddings=62, global_tokens=2, **LEVELS)
    enlarge(actual)
    settings = {**actual.config.to_dict(), "attention_backend": "reference"}
    expected = type(actual)(type(actual.config)(**settings)).double().eval()
    expected.load_state_dict(actual.state_dict())
    batch = inputs(kind, head)
    real, results = batch["attention_mask"].bool(), []
    for model in (actual, expected):
        output = model(**batch, output_attentions=True, output_hidden_states=True)
        loss_of(output, real).backward()
        results.append([loss_of(output, real), *(p.grad for p in model.parameters() if p.grad is not None)])
    assert len(results[0]) == len(results[1]) > 20
    for result, reference in zip(*results, strict=True):
        torch.testing.assert_close(result, reference, rtol=0, atol=1e-11 * max(1, reference.abs().max().item()))
    of_encoder = "" if kind in ENCODERS else "encoder_"
    attentions, states = output[f"{of_encoder}attentions"], output[f"{of_encoder}hidden_states"]
    assert [weights.level_two is None for weights in attentions] == [True, False, False]
    with torch.no_grad(), recorded_weights(model) as recorded:
        model(**batch)
    torch.testing.assert_close(tuple(recorded.values()), attentions, rtol=0, atol=0)
    if kind.startswith(("modernbert", "mbart")):  # with rotations, or norms before
        return
    masks = {"global_mask": (torch.arange(20) < 2) & real, "key_padding_mask": ~real}
    modules = [module for module in model.modules() if isinstance(module, EncoderSelfAttention)]
    for attention, weights, x in zip(modules, attentions, states, strict=False):
        q, k = attention._split(attention.q_proj(x)), attention._split(attention.k_proj(x))
        visible = expected_weights(q, k, window=attention.window, **masks) > 0
        scores = q.size(-1) ** -0.5 * q @ k.mT
        wanted = scores.masked_fill(~visible, -torch.inf).softmax(-1).nan_to_num()
        torch.testing.assert_close(dense(weights.level_one), wanted, rtol=0, atol=1e-6)


@BOTH
@torch.no_grad()
def test_padding_may_be_on_the_left(kind, head):
    model = ours(kind, head).from_short(short(kind, head), **LEVELS)
    right, left = inputs(kind, head), inputs(kind, head, left=True)
    if kind not in ENCODERS and head in READERS:
        with pytest.raises(ValueError, match="this head takes padding on the right"):
            model(**left)
        return
    chosen = torch.zeros(4, 20, dtype=torch.long)
    chosen[:, [0, 3]] = 1
    if head == "ForQuestionAnswering":
        moved = 20 - torch.tensor(LENGTHS)
        left |= {name: right[name] + moved for name in ("start_positions", "end_positions")}
    outputs = []
    for mask in (None, chosen):
        masks = (mask, None if mask is None else rolled(mask))
        if head == "ForMultipleChoice" and mask is not None:
            masks = tuple(each.unflatten(0, (2, 2)) for each in masks)
        expected, actual = (
            model(**batch, global_attention_mask=global_mask)
            for batch, global_mask in zip((right, left), masks, strict=True)
        )
        outputs.append(next(value for name, value in expected.items() if name != "loss"))
        for name, value in expected.items():
            if torch.is_tensor(value):
                is_of_tokens = value.shape[:2] == (4, 20)
                real = left["attention_mask"].bool() if is_of_tokens else ...
                value = rolled(value) if is_of_tokens else value
                limit = 1e-12 if value.dtype == torch.float64 else 1e-6  # some losses are in float32
                torch.testing.assert_close(actual[name][real], value[real], rtol=0, atol=limit)
    assert (outputs[0] != outputs[1]).any()  # the user's global tokens are heeded


@EVERY
@torch.no_grad()
def test_global_tokens_see_and_are_seen(kind):
    head = CONFIGS[kind][1][0]
    model = ours(kind, head).from_short(short(kind, head), window_size="1", pooled_layers="none", global_tokens=0)
    encoder = model if kind in ENCODERS else model.get_encoder()
    batch = {**inputs(kind), "attention_mask": None}
    batch.pop("decoder_input_ids", None)
    changed = {**batch, "input_ids": batch["input_ids"].clone()}
    changed["input_ids"][:, 5] = 49
    mask = torch.zeros(4, 20, dtype=torch.long)
    mask[:, 5] = 1
    for global_mask, reaches in ((None, False), (mask, True)):
        plain, altered = (
            encoder(**each, global_attention_mask=global_mask).last_hidden_state for each in (batch, changed)
        )
        assert (plain[0, -1] != altered[0, -1]).any() == reaches
        assert (plain[0, 6] != altered[0, 6]).any()


@EVERY
def test_trainer_peft_and_checkpointing(kind):
    """A share of the batches' mean, adapters in both levels, recomputed layers."""
    head = "ForMaskedLM" if kind in ENCODERS else "ForConditionalGeneration"
    model, batch = ours(kind, head).from_short(short(kind, head), **LEVELS).eval(), inputs(kind, head)
    loss = model(**batch).loss
    share = model(**batch, num_items_in_batch=100).loss
    torch.testing.assert_close(share, loss * batch["labels"].ne(-100).sum() / 100)
    loss.backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.gradient_checkpointing_enable()
    without_dropout(model.train()).zero_grad()
    model(**batch).loss.backward()
    for name, value in expected.items():
        torch.testing.assert_close(model.get_parameter(name).grad, value, rtol=0, atol=1e-10)
    peft = pytest.importorskip("peft")
    query = family_of(kind.partition("-")[0]).layout.names[0]
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=[query, "pooled_q_proj"]))
    adapted(**batch).loss.backward()
    actual = [name for name, p in adapted.named_parameters() if p.requires_grad and p.grad is not None]
    assert any("pooled_q_proj" in name for name in actual)
    assert any("pooled" not in name for name in actual)


@pytest.mark.parametrize(
    ("kind", "offset"), [("bert", 0), ("electra", 0), ("distilbert", 0), ("roberta", 2), ("roberta-padded", 4)]
)
@torch.no_grad()
def test_positions_are_repeated(kind, offset):
    """From the first token's row on, which in RoBERTa's kin is behind padding's."""
    theirs = short(kind)
    rows = theirs.embeddings.position_embeddings.weight
    model = ours(kind, "Model").from_short(theirs, max_position_embeddings=75, **LEVELS)
    table, count = model.embeddings.position_embeddings.weight, 30 - offset
    assert torch.equal(table[:30], rows)
    assert torch.equal(table[30:], rows[offset:].repeat(3, 1)[: 75 - 30])
    assert model.max_tokens == short_models.longest_input(model) == 75 - offset
    assert short_models.longest_input(theirs) == short_models.longest_input(theirs.config) == count
    tokens = torch.randint(4, 50, (1, 75 - offset))
    assert model(tokens).last_hidden_state.isfinite().all()
    with pytest.raises(ValueError, match=f"the model takes {75 - offset} "):
        model(torch.cat([tokens, tokens[:, :1]], 1))


@torch.no_grad()
def test_positions_of_sines_are_computed():
    theirs = short("distilbert", sinusoidal_pos_embds=True)
    rows = theirs.embeddings.position_embeddings.weight
    rows.add_(torch.randn_like(rows))  # trained further
    table = ours("distilbert", "Model").from_short(theirs, max_position_embeddings=75, **LEVELS).embeddings
    fresh = type(theirs)(config("distilbert", sinusoidal_pos_embds=True, max_position_embeddings=75)).embeddings
    assert torch.equal(table.position_embeddings.weight[:30], rows)
    assert torch.equal(table.position_embeddings.weight[30:], fresh.position_embeddings.weight[30:].double())


@pytest.mark.parametrize("setting", [{"random_position_offsets": True}, {"position_init": "interpolate"}])
def test_settings_of_learned_positions_are_refused_where_there_are_none(setting):
    with pytest.raises(ValueError, match=f"{next(iter(setting))}=.* is about learned positions, .* leave it out$"):
        ours("modernbert", "Model").from_short(short("modernbert"), **setting)


@pytest.mark.parametrize("head", READERS)
@torch.no_grad()
def test_a_decoder_that_reads_the_input_takes_what_the_encoder_takes(head):
    model = ours("bart", head).from_short(short("bart", head), max_position_embeddings=62, **LEVELS)
    assert model.config.max_decoder_position_embeddings == 62
    batch = inputs("bart", head)
    batch["input_ids"] = torch.cat([batch["input_ids"][:, :1]] * 42 + [batch["input_ids"]], 1)
    batch["attention_mask"] = batch["input_ids"].ne(1).long()
    assert model(**batch).loss.isfinite()
    less = ours("bart", head).from_short(short("bart", head), max_decoder_position_embeddings=40, **LEVELS)
    assert less.config.max_decoder_position_embeddings == 40


@pytest.mark.parametrize("kind", ["bart", "mbart"])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_classifier_has_as_many_classes_as_were_saved(kind, classes, tmp_path):
    head = ours(kind, "ForSequenceClassification")
    head(head.config_class(**BART, pooled_layers="1", num_labels=classes)).save_pretrained(tmp_path)
    assert head.from_pretrained(tmp_path).config.num_labels == classes


@torch.no_grad()
def test_an_output_matrix_of_its_own_stays_one(tmp_path):
    """As transformers leaves it, where a checkpoint has two."""
    theirs = short("bart", "ForConditionalGeneration")
    theirs.lm_head.weight = torch.nn.Parameter(torch.randn_like(theirs.lm_head.weight))
    long = ours("bart", "ForConditionalGeneration").from_short(theirs, **WIDE)
    batch = inputs("bart", "ForConditionalGeneration")
    expected = theirs(**batch).logits
    torch.testing.assert_close(long(**batch).logits, expected, rtol=0, atol=1e-12)
    long.save_pretrained(tmp_path)
    torch.testing.assert_close(type(long).from_pretrained(tmp_path)(**batch).logits, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "head", "make", "message"),
    [
        ("bert", "Model", lambda: AlbertModel(AlbertConfig(**ENCODER, embedding_size=16)),
         "models of type albert are not made long: its layers share their parameters"),
        ("bert", "Model", lambda: GPT2Model(GPT2Config(n_embd=24, n_layer=1, n_head=4, vocab_size=50)),
         "models of type gpt2 are not made long: those that are have type bart, led"),
        ("bart", "Model", lambda: T5Model(T5Config(d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, vocab_size=9)),
         "models of type t5 are not made long: it has scores by distance in place of positions"),
        ("bert", "Model", lambda: short("electra"), "the short model is a electra; PoolingformerBertModel takes bert"),
        ("bart", "ForConditionalGeneration", lambda: short("mbart"), r"is a mbart; .* takes bart or led"),
    ],
)  # fmt: skip
def test_other_models_are_refused(kind, head, make, message):
    with pytest.raises(ValueError, match=message):
        ours(kind, head).from_short(make())


def test_settings_and_inputs_are_refused():
    assert not set(short_models.REFUSED) & {kind for family in FAMILIES.values() for kind in family.short}
    with pytest.raises(ValueError, match="give either input_ids or inputs_embeds"):
        ours("bert", "ForMultipleChoice")(ours("bert", "Model").config_class(**ENCODER, pooled_layers="1"))()


@pytest.mark.parametrize(
    ("kind", "head", "arguments", "end"),
    [
        ("bart", "Model", [], "ForConditionalGeneration"),
        ("bart", "ForSequenceClassification", [], "ForSequenceClassification"),
        ("bart", "Model", ["--head", "question-answering"], "ForQuestionAnswering"),
        ("bert", "ForTokenClassification", [], "ForTokenClassification"),
        ("roberta-padded", "ForMaskedLM", ["--head", "multiple-choice"], "ForMultipleChoice"),
        ("camembert", "Model", ["--head", "masked-lm"], "ForMaskedLM"),
    ],
)
def test_the_head_on_the_command_line(kind, head, arguments, end):
    short_config = short(kind, head).config
    short_config.architectures = [ours(kind, head).__name__.removeprefix("Poolingformer")]
    family, ending = made_class(short_config, arguments[-1] if arguments else None)
    assert getattr(huggingface, f"Poolingformer{family.name}{ending}") is ours(kind, end)


def test_a_model_without_the_part_is_refused():
    """Such as in a transformers that builds it elsewhere; its own part would run, and nothing would say so."""

    class Model(WithParts, BertModel):
        parts = (huggingface.PoolingformerRobertaModel,)

    with pytest.raises(TypeError, match=r"BertModel of this transformers has no child RobertaModel"):
        Model(config("bert"))


def test_a_row_is_a_family(monkeypatch):
    """For ERNIE, which has none here, it makes a class with every head that equals transformers'."""
    family = LongFamily("Ernie", FAMILIES["poolingformer-bert"].layout)
    monkeypatch.setitem(FAMILIES, family.model_type, family)
    classes.make_family(family)
    monkeypatch.setitem(CONFIGS, "ernie", (ENCODER, HEADS))
    monkeypatch.setattr(tiny_models, "ENCODERS", [*ENCODERS, "ernie"])
    for name in [f"PoolingformerErnie{end}" for end in family.ends]:
        monkeypatch.setattr(huggingface, name, getattr(classes, name), raising=False)
    assert set(family.ends) == set(HEADS)
    for head in HEADS:
        test_with_wide_windows_it_is_transformers_own_model("ernie", head)


def test_every_family_has_a_tiny_model_in_the_tests():
    """The ends of its classes' names are those that are tested."""
    tested = {kind: set(heads) for kind, (_, heads) in CONFIGS.items()}
    assert {family.name.lower(): set(family.ends) for family in FAMILIES.values()}.items() <= tested.items()


def test_classes_and_models_are_pickled_by_their_names():
    names = huggingface.__all__
    assert len(names) == 45
    for name in names:
        assert getattr(huggingface, name).__name__ == name
        assert pickle.loads(pickle.dumps(getattr(huggingface, name))) is getattr(huggingface, name)
    for kind, head in (("bert", "ForMaskedLM"), ("roberta", "ForQuestionAnswering")):
        model = ours(kind, head).from_short(short(kind, head), **LEVELS)
        again = pickle.loads(pickle.dumps(model))
        assert torch.equal(again(**inputs(kind))[0], model(**inputs(kind))[0])
