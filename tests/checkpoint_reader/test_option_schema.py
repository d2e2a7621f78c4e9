"""The values that a checkpoint may give to options."""

import pytest

from fairseq_poolingformer.checkpoint_reader.errors import ConfigurationError
from fairseq_poolingformer.checkpoint_reader.option_schema import Option, accepted, plain_settings


def test_settings_for_conversion():
    given = {"encoder_layers": 2.0, "d_model": 8, "x": "/etc/passwd", "dropout": 0.1, "eval_bleu": False, "big": 1e300}
    assert plain_settings(given) == {"encoder_layers": 2, "d_model": 8, "dropout": 0.1, "eval_bleu": False}
    for wrong in ({"encoder_layers": "[1]"}, {"hidden_size": [8]}, {"d_model": -1}, {"vocab_size": 2.5}):
        with pytest.raises(ConfigurationError, match="its option "):
            plain_settings(wrong)


@pytest.mark.parametrize(
    ("name", "value", "option"),
    [
        ("encoder_layers", 12, Option(int)),
        ("dropout", 0.1, Option(float)),
        ("dropout", 0, Option(float)),
        ("pooled_layers", "6-11", Option(str)),
        ("window_size", "8,16,all", Option()),
        ("activation_fn", "gelu", Option(str, ("relu", "gelu"))),
        ("share_all_embeddings", "True", Option(bool)),
        ("required_seq_len_multiple", 8, Option(int)),
        ("anything", None, Option(int)),
        ("update_freq", [16], Option(object)),
        ("eval_rouge_args", '{"beam": 5, "lenpen": 1e-05, "max_len_b": 16384, "no_repeat_ngram_size": 0}', Option(str)),
    ],
)
def test_values_that_are_kept(name, value, option):
    assert accepted(name, value, option)


@pytest.mark.parametrize(
    ("name", "value", "option", "form"),
    [
        ("encoder_layers", 1001, Option(int), "from 0 to 1,000"),
        ("encoder_layers", 2.5, Option(int), "a whole number"),
        ("encoder_layers", True, Option(int), "a whole number"),
        ("pool_stride", 0, Option(int), "from 1 to"),
        ("required_seq_len_multiple", -8, Option(int), "from 1 to"),
        ("required_batch_size_multiple", 0, Option(int), "from 1 to"),
        ("dropout", "0.1", Option(float), "a number"),
        ("dropout", float("nan"), Option(float), "a number up to"),
        ("seed", 10**30, Option(int), "a number up to"),
        ("pooled_layers", "6-11; rm", Option(str), "a plain value"),
        ("activation_fn", "tanh", Option(str, ("relu", "gelu")), "one of relu, gelu"),
        ("share_all_embeddings", "yes", Option(bool), "true or false"),
    ],
)
def test_values_that_are_refused(name, value, option, form):
    with pytest.raises(ConfigurationError, match=f"its option {name} is .*{form}"):
        accepted(name, value, option)


@pytest.mark.parametrize("value", ["/etc/passwd", "${oc.env:HOME}", ["a", "b"], {"a": 1}])
def test_texts_that_have_no_form_are_left_out(value):
    assert not accepted("results_path", value, Option(str))
    assert not accepted("tpu", True, Option(bool))


@pytest.mark.parametrize("rate", [[2e-05], [5e-5, 1e-07], 2e-05, "2.5e-05", "[3e-05]", [1e17 * 1e-8]])
def test_small_rates_are_plain(rate):
    """The learning rates of fine-tuning, which Python writes with an exponent."""
    assert plain_settings({"lr": rate, "adam_betas": "(0.9, 1e-05)"}) == {"lr": rate, "adam_betas": "(0.9, 1e-05)"}


@pytest.mark.parametrize("rate", ["e", "exec", "1e", "__e__1", ["2e-05", "x"]])
def test_other_texts_are_not(rate):
    with pytest.raises(ConfigurationError, match=r"lr is .* must be a plain value"):
        plain_settings({"lr": rate})
