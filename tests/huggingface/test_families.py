"""Every family of transformers' text encoders with two-level attention: the same tests for all of them.

transformers' own classes with the same weights are the oracle where windows are as wide as the input; a dense
computation is, where they are not.
"""

import pickle

import pytest
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch.nn import Linear
from transformers import (
    AlbertConfig,
    AlbertModel,
    BertConfig,
    CamembertConfig,
    DistilBertConfig,
    ElectraConfig,
    ErnieConfig,
    GPT2Config,
    GPT2Model,
    MPNetConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
)
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from fairseq_poolingformer import huggingface
from fairseq_poolingformer.attention import recorded_weights
from fairseq_poolingformer.huggingface import classes, short_models
from fairseq_poolingformer.huggingface.attention import EncoderSelfAttention
from fairseq_poolingformer.huggingface.encoders import with_parts
from fairseq_poolingformer.huggingface.families import FAMILIES, Family
from tests.attention.test_probabilities import dense, expected_weights
from tests.huggingface.test_bart import LEVELS, MERGED, WIDE, run

SIZES = {"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4}
SIZES |= {"intermediate_size": 40, "max_position_embeddings": 30, "type_vocab_size": 2}
ROBERTA = {**SIZES, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
MPNET = {name: value for name, value in ROBERTA.items() if name != "type_vocab_size"}
DISTILBERT = {"vocab_size": 50, "dim": 24, "n_layers": 3, "n_heads": 4, "hidden_dim": 40, "max_position_embeddings": 30}
CONFIGS = {  # model_type -> configuration, and the start of the names of our classes
    "roberta": (RobertaConfig, ROBERTA, "Roberta"),
    "camembert": (CamembertConfig, ROBERTA, "Roberta"),
    "bert": (BertConfig, SIZES, "Bert"),
    "electra": (ElectraConfig, {**SIZES, "embedding_size": 16}, "Electra"),
    "distilbert": (DistilBertConfig, DISTILBERT, "DistilBert"),
    "mpnet": (MPNetConfig, MPNET, "MPNet"),
}
HEADS = ("Model", "ForMaskedLM", "ForMultipleChoice", "ForQuestionAnswering")
HEADS += ("ForSequenceClassification", "ForTokenClassification")
LENGTHS = (20, 13, 6, 20)
BIASES = {
    "mpnet": lambda model, x: MPNetEncoder.compute_position_bias(model.encoder, x)
}  # (B, H, T, T) of transformers
EVERY = pytest.mark.parametrize("kind", CONFIGS)


def ours(kind, head):
    return getattr(huggingface, f"Poolingformer{CONFIGS[kind][2]}{head}")


def config(kind, **changes):
    make, sizes, _ = CONFIGS[kind]
    return make(**{**sizes, "attn_implementation": "eager", **changes})


def short(kind, head="Model", **changes):
    """transformers' model in double precision, with parameters that are large enough to be missed."""
    start = "Camembert" if kind == "camembert" else CONFIGS[kind][2]
    cls = getattr(transformers, start + head)
    torch.manual_seed(1)
    model = cls(config(kind, **changes)).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(torch.randn_like(parameter) * (0.1 if "norm" in name.lower() else 0.2))
    return model


def inputs(kind, head="Model", left=False):
    """A batch with padding, and the labels of a head."""
    torch.manual_seed(2)
    pad = config(kind).pad_token_id
    tokens = torch.randint(4, 50, (4, 20))
    labels = torch.randint(0, 2, (4, 20))
    places = torch.arange(20).expand(4, 20)
    for row, length in enumerate(LENGTHS):
        tokens[row, length:], labels[row, length:] = pad, -100
    given = {"input_ids": tokens, "attention_mask": tokens.ne(pad).long(), "token_type_ids": places // 4 % 2}
    if kind in ("distilbert", "mpnet"):
        del given["token_type_ids"]
    given |= {"labels": labels} if head in ("ForMaskedLM", "ForTokenClassification") else {}
    if left:
        given = {name: _rolled(x) for name, x in given.items()}
    if head == "ForMultipleChoice":
        return {**{name: x.unflatten(0, (2, 2)) for name, x in given.items()}, "labels": torch.tensor([0, 1])}
    if head == "ForSequenceClassification":
        given["labels"] = torch.tensor([0, 1, 1, 0])
    if head == "ForQuestionAnswering":
        given |= {"start_positions": torch.tensor([1, 2, 3, 4]), "end_positions": torch.tensor([4, 4, 4, 9])}
    return given


def _rolled(x):
    """Move the padding of (4, 20) or (4, 20, C) to the left."""
    return torch.stack([row.roll(20 - length, 0) for row, length in zip(x, LENGTHS, strict=True)])


def differences(found, expected, real):
    """Yield the largest difference of each output that all rows have, at real tokens where it has one for each."""
    for name, value in expected.items():
        if torch.is_tensor(value):
            where = real if value.shape[:2] == real.shape else ...
            yield name, (found[name][where] - value[where]).abs().max().item()


def loss_of(output, real):
    """The loss, or of a model without one a sum over the real tokens."""
    return output.loss if "loss" in output else (output.last_hidden_state[real].sin()).sum()


@EVERY
@pytest.mark.parametrize("head", HEADS)
def test_with_wide_windows_it_is_transformers_own_model(kind, head):
    theirs = short(kind, head)
    merged = MERGED | {"pooled_layers": "0-2"} if head in ("Model", "ForTokenClassification") else WIDE
    long = ours(kind, head).from_short(theirs, max_position_embeddings=62, **merged)
    given = inputs(kind, head)
    real = given["attention_mask"].bool()
    expected, found = theirs(**given), long(**given)
    for name, difference in differences(found, expected, real):
        assert difference < 1e-12, name
    loss_of(expected, real).backward()
    loss_of(found, real).backward()
    gradients, compared = {name: p.grad for name, p in theirs.named_parameters(remove_duplicate=False)}, 0
    for name, parameter in long.named_parameters():
        expected = gradients[name]
        if expected is not None:
            grad = parameter.grad[: len(expected)] if "position_embeddings" in name else parameter.grad
            torch.testing.assert_close(grad, expected, rtol=0, atol=1e-12 * max(1, expected.abs().max().item()))
            compared += 1
    assert compared > 40


@EVERY
def test_both_levels_are_the_dense_ones(kind):
    """Outputs and gradients of the reference, and the weights that it computes."""
    found = ours(kind, "Model").from_short(short(kind), max_position_embeddings=62, global_tokens=2, **LEVELS)
    enlarge(found)
    settings = {**found.config.to_dict(), "attention_backend": "reference"}
    expected = type(found)(type(found.config)(**settings)).double().eval()
    expected.load_state_dict(found.state_dict())
    given = inputs(kind)
    real, results = given["attention_mask"].bool(), []
    for model in (found, expected):
        output = model(**given, output_attentions=True, output_hidden_states=True)
        loss_of(output, real).backward()
        results.append([output.last_hidden_state[real], *(p.grad for p in model.parameters() if p.grad is not None)])
    assert len(results[0]) == len(results[1]) > 50
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11 * max(1, other.abs().max().item()))
    assert [weights.level_two is None for weights in output.attentions] == [True, False, False]
    with torch.no_grad(), recorded_weights(model) as recorded:
        model(**given)
    torch.testing.assert_close(tuple(recorded.values()), output.attentions, rtol=0, atol=0)
    global_mask = (torch.arange(20) < 2).expand(4, 20)
    attentions = [module for module in model.modules() if isinstance(module, EncoderSelfAttention)]
    for attention, weights, x in zip(attentions, output.attentions, output.hidden_states, strict=False):
        q, k = attention._split(attention.q_proj(x)), attention._split(attention.k_proj(x))
        masks = {"global_mask": global_mask & real, "key_padding_mask": ~real}
        seen = expected_weights(q, k, window=attention.window, **masks) > 0
        scores = q.size(-1) ** -0.5 * q @ k.mT + BIASES.get(kind, lambda model, x: 0.0)(model, x)
        wanted = scores.masked_fill(~seen, -torch.inf).softmax(-1).nan_to_num()
        torch.testing.assert_close(dense(weights.level_one), wanted, rtol=0, atol=1e-6)


def enlarge(model):
    torch.manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".pooled_" in name:
                parameter.add_(torch.randn_like(parameter) * 0.3)


@EVERY
@pytest.mark.parametrize("head", HEADS)
@torch.no_grad()
def test_padding_may_be_on_the_left(kind, head):
    model = ours(kind, head).from_short(short(kind, head), **LEVELS)
    right, left = inputs(kind, head), inputs(kind, head, left=True)
    chosen = torch.zeros(4, 20, dtype=torch.long)
    chosen[:, [0, 3]] = 1
    if head == "ForQuestionAnswering":
        moved = 20 - torch.tensor(LENGTHS)
        left |= {name: right[name] + moved for name in ("start_positions", "end_positions")}
    first = []
    for mask in (None, chosen):
        masks = (mask, None if mask is None else _rolled(mask))
        if head == "ForMultipleChoice" and mask is not None:
            masks = tuple(each.unflatten(0, (2, 2)) for each in masks)
        expected, found = (
            model(**given, global_attention_mask=own) for given, own in zip((right, left), masks, strict=True)
        )
        first.append(next(value for name, value in expected.items() if name != "loss"))
        for name, value in expected.items():
            if value.shape[:2] == (4, 20):
                value, real = _rolled(value), left["attention_mask"].bool()
                torch.testing.assert_close(found[name][real], value[real], rtol=0, atol=1e-12)
            else:
                torch.testing.assert_close(found[name], value, rtol=0, atol=1e-12)
    assert (first[0] != first[1]).any()  # the user's global tokens are heeded


@EVERY
@torch.no_grad()
def test_global_tokens_see_and_are_seen(kind):
    model = ours(kind, "Model").from_short(short(kind), window_size="1", pooled_layers="none", global_tokens=0)
    given = {**inputs(kind), "attention_mask": None}
    changed = {**given, "input_ids": given["input_ids"].clone()}
    changed["input_ids"][:, 5] = 49
    mask = torch.zeros(4, 20, dtype=torch.long)
    mask[:, 5] = 1
    for global_mask, reaches in ((None, False), (mask, True)):
        one, other = (model(**each, global_attention_mask=global_mask).last_hidden_state for each in (given, changed))
        assert (one[0, -1] != other[0, -1]).any() == reaches
        assert (one[0, 6] != other[0, 6]).any()


@EVERY
def test_rows_begin_at_random_positions_in_training(kind):
    model = ours(kind, "Model").from_short(short(kind), random_position_offsets=True, **LEVELS).train()
    table = model.embeddings.position_embeddings
    model.embeddings.dropout.p, seen = 0.0, []
    table.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    first = model.layout.first_position
    for _ in range(2):
        model(**inputs(kind))
    for positions in seen:
        for row, length in zip(positions, LENGTHS, strict=True):
            assert (row[:length].diff() == 1).all()
            assert row[0] >= first
            assert row[length - 1] < table.num_embeddings
    assert len({int(row[0]) for positions in seen for row in positions}) > 3
    model.eval()(**inputs(kind))
    assert (seen[2].expand(4, 20)[:, 0] == first).all()


@EVERY
def test_trainer_peft_and_checkpointing(kind):
    """A share of the batches' mean, adapters in both levels, recomputed layers."""
    model = ours(kind, "ForMaskedLM").from_short(short(kind, "ForMaskedLM"), **LEVELS).eval()
    given, labels = inputs(kind), inputs(kind, "ForMaskedLM")["labels"]
    loss = model(**given, labels=labels).loss
    share = model(**given, labels=labels, num_items_in_batch=100).loss
    torch.testing.assert_close(share, loss * labels.ne(-100).sum() / 100)
    loss.backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    if model.supports_gradient_checkpointing:
        model.gradient_checkpointing_enable()
        for module in model.train().modules():
            for name in ("p", "dropout"):
                if isinstance(getattr(module, name, None), float):
                    setattr(module, name, 0.0)
        model.zero_grad()
        model(**given, labels=labels).loss.backward()
        for name, value in expected.items():
            torch.testing.assert_close(dict(model.named_parameters())[name].grad, value, rtol=0, atol=1e-10)
    assert model.supports_gradient_checkpointing == (kind != "mpnet")
    peft = pytest.importorskip("peft")
    if kind in ("distilbert", "mpnet"):  # PEFT has no names for these
        targets = {"target_modules": ["q_lin", "pooled_q_proj"] if kind == "distilbert" else ["q", "pooled_q_proj"]}
    else:
        targets = {}
    adapted = peft.get_peft_model(model, peft.LoraConfig(**targets))
    adapted(**given, labels=labels).loss.backward()
    found = [name for name, p in adapted.named_parameters() if p.requires_grad and p.grad is not None]
    assert any("pooled_q_proj" in name for name in found)
    assert any("pooled" not in name for name in found)


def test_distances_beyond_the_buckets_share_the_last_one():
    theirs = short("mpnet", max_position_embeddings=402)
    wide = {"max_position_embeddings": 402, "window_size": "all", "pooled_layers": "none"}
    long = ours("mpnet", "Model").from_short(theirs, **wide)
    tokens = torch.randint(4, 50, (1, 400))
    found, expected = long(tokens).last_hidden_state, theirs(tokens).last_hidden_state
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "sinusoidal"), [("bert", False), ("electra", False), ("distilbert", False), ("distilbert", True)]
)
@torch.no_grad()
def test_positions_are_repeated_or_computed(kind, sinusoidal):
    theirs = short(kind, **{"sinusoidal_pos_embds": True} if sinusoidal else {})
    own = theirs.embeddings.position_embeddings.weight
    own.add_(torch.randn_like(own))  # trained further
    model = ours(kind, "Model").from_short(theirs, max_position_embeddings=75, **LEVELS)
    table = model.embeddings.position_embeddings.weight
    assert torch.equal(table[:30], own)
    if sinusoidal:
        fresh = type(theirs)(config("distilbert", sinusoidal_pos_embds=True, max_position_embeddings=75))
        assert torch.equal(table[30:], fresh.embeddings.position_embeddings.weight[30:].double())
    else:
        assert torch.equal(table[30:60], own)
        assert torch.equal(table[60:], own[:15])


def test_what_is_refused_is_said():
    with pytest.raises(ValueError, match="models of type albert are not made long: its layers share their parameters"):
        ours("bert", "Model").from_short(AlbertModel(AlbertConfig(**{**SIZES, "embedding_size": 16})))
    with pytest.raises(ValueError, match="models of type gpt2 are not made long: those that are have type bart, led"):
        ours("bert", "Model").from_short(GPT2Model(GPT2Config(n_embd=24, n_layer=1, n_head=4, vocab_size=50)))
    with pytest.raises(ValueError, match="the short model is a electra; PoolingformerBertModel takes bert"):
        ours("bert", "Model").from_short(short("electra"))
    with pytest.raises(ValueError, match="every token sees both sides"):
        ours("bert", "Model").from_short(short("bert"), is_decoder=True)
    assert not set(short_models.REFUSED) & {kind for family in FAMILIES.values() for kind in family.short}


@EVERY
def test_a_choice_needs_texts(kind):
    with pytest.raises(ValueError, match="give either input_ids or inputs_embeds"):
        ours(kind, "ForMultipleChoice")(ours(kind, "Model").config_class(**CONFIGS[kind][1], pooled_layers="1"))()


@pytest.mark.parametrize(
    ("kind", "head", "arguments", "tokens"),
    [
        ("bert", "ForTokenClassification", [], 60),
        ("mpnet", "ForMaskedLM", ["--head", "multiple-choice"], 60),
        ("camembert", "Model", ["--head", "masked-lm"], 60),
    ],
)
def test_from_short_on_the_command_line(kind, head, arguments, tokens, tmp_path, capsys):
    short(kind, head).float().save_pretrained(tmp_path / "short")
    vocabulary = ["<pad>", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({word: row for row, word in enumerate(vocabulary)}, "[UNK]"))
    )
    tokenizer.save_pretrained(tmp_path / "short")
    settings = ["--max-tokens", tokens, "--window-size", "4", "--pooled-layers", "2", *arguments]
    assert run("from-short", tmp_path / "short", tmp_path / "long", *settings) == 0
    end = {"multiple-choice": "ForMultipleChoice", "masked-lm": "ForMaskedLM"}.get((arguments or [""])[-1], head)
    assert f"Poolingformer{CONFIGS[kind][2]}{end} for 60 tokens, window_size 4" in capsys.readouterr().out
    model = ours(kind, end).from_pretrained(tmp_path / "long")
    assert model.base_model.max_tokens == tokens


def test_a_constructor_without_the_part_is_refused():
    """Such as one behind a decorator, which would build transformers' own part and say nothing."""

    class Model:
        def __init__(self, width):
            self.layer = Linear(width, width)

    class Own(Linear):
        pass

    class Both(Model):
        def __init__(self, *parts):
            with_parts(super().__init__, *parts)(3)

    assert type(Both(Own).layer) is Own
    assert type(Both().layer) is Linear
    with pytest.raises(TypeError, match=r"Model\.__init__ of this transformers names no BertModel"):
        Both(huggingface.PoolingformerBertModel)


def test_a_row_is_a_family(monkeypatch):
    """Of ERNIE, which has none here, it makes a class with every head that equals transformers'."""
    family = Family("Ernie", FAMILIES["poolingformer-bert"].layout)
    monkeypatch.setitem(FAMILIES, family.model_type, family)
    classes.make_family(family)
    monkeypatch.setitem(CONFIGS, "ernie", (ErnieConfig, SIZES, "Ernie"))
    for name in [f"PoolingformerErnie{end}" for end in family.ends]:
        monkeypatch.setattr(huggingface, name, getattr(classes, name), raising=False)
    assert set(family.ends) == set(HEADS)
    for head in HEADS:
        test_with_wide_windows_it_is_transformers_own_model("ernie", head)
    test_both_levels_are_the_dense_ones("ernie")


def test_classes_are_pickled_by_their_names():
    names = [name for name in huggingface.__all__ if name.startswith("Pooling")]
    assert len(names) == 62
    for name in names:
        assert getattr(huggingface, name).__name__ == name
        assert pickle.loads(pickle.dumps(getattr(huggingface, name))) is getattr(huggingface, name)


def test_whole_models_are_pickled():
    for kind, head in (("mpnet", "ForMaskedLM"), ("roberta", "ForQuestionAnswering")):
        model = ours(kind, head).from_short(short(kind, head), **LEVELS)
        again = pickle.loads(pickle.dumps(model))
        assert torch.equal(again(**inputs(kind))[0], model(**inputs(kind))[0])
