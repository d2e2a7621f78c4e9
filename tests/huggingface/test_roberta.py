"""Poolingformer-RoBERTa in transformers: fairseq's model with the same weights, and the heads of transformers."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForMaskedLM, AutoTokenizer, pipeline

from fairseq_poolingformer.huggingface import (
    PoolingformerRobertaForMaskedLM,
    PoolingformerRobertaForSequenceClassification,
)
from tests.huggingface.tiny_models import LEVELS, converted, converted_back
from tests.models import tiny_huggingface
from tests.weights.encoders import assert_agree, batch, globals_at, load


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """fairseq's model with random weights in double precision, and the folder that it converts to."""
    path, arguments = tmp_path_factory.mktemp("roberta"), ("--arch", "poolingformer_roberta_base")
    model, folder = converted(path, "roberta", load, LEVELS, arguments=arguments)
    return model.double(), folder


def test_logits_are_fairseqs(made):
    model, folder = made
    theirs, info = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert type(theirs) is PoolingformerRobertaForMaskedLM
    assert not any(info.values())
    for tokens in (batch(), batch((46, 1, 31))):
        assert_agree(model, theirs.eval(), tokens)
        assert_agree(model, theirs, tokens, globals_at(tokens, [0, 3], [0], [0, 1, 4]))


def test_gradients_of_the_loss_are_fairseqs(made):
    model, folder = made
    theirs, tokens = AutoModelForMaskedLM.from_pretrained(folder).double().eval(), batch()
    labels = tokens.masked_fill(tokens.eq(1), -100)
    model.zero_grad()
    loss = F.cross_entropy(model(tokens)[0].flatten(0, 1), labels.flatten())
    loss.backward()
    output = theirs(tokens, attention_mask=tokens.ne(1).long(), labels=labels)
    output.loss.backward()
    torch.testing.assert_close(output.loss, loss)
    own = dict(model.named_parameters())
    for number, layer in enumerate(theirs.roberta.encoder.layer):
        ours = f"encoder.sentence_encoder.layers.{number}."
        pairs = [(layer.attention.self.query, "self_attn.q_proj"), (layer.attention.output.dense, "self_attn.out_proj")]
        pairs += [(layer.intermediate.dense, "fc1")]
        for module, name in pairs:
            torch.testing.assert_close(module.weight.grad, own[f"{ours}{name}.weight"].grad)
        if number:
            weight = layer.attention.self.pooled_k_pool_weight
            torch.testing.assert_close(weight.grad, own[f"{ours}self_attn.pooled_k_pool_weight"].grad)


def test_weights_go_to_transformers_and_back_bit_for_bit(made, tmp_path):
    model, folder = made
    converted_back(folder, model, tmp_path)


def test_from_short_makes_a_classifier_as_wide_as_asked(tmp_path):
    tiny_huggingface.folder(tmp_path, "roberta")
    cls = PoolingformerRobertaForSequenceClassification
    long = cls.from_short(tmp_path, num_labels=5)
    assert (long.config.num_labels, long.classifier.out_proj.out_features) == (5, 5)
    named = cls.from_short(tmp_path, id2label={0: "no", 1: "yes", 2: "both"}, label2id={"no": 0, "yes": 1, "both": 2})
    assert (named.config.id2label[2], named.classifier.out_proj.out_features) == ("both", 3)
    short = cls.short_classes["roberta"].from_pretrained(tmp_path, num_labels=3)
    assert cls.from_short(short, num_labels=3).config.num_labels == 3
    with pytest.raises(ValueError, match="num_labels is 3, not 5: load it with num_labels=5"):
        cls.from_short(short, num_labels=5)
    with pytest.raises(
        ValueError, match=r"the short model lacks classifier\.dense\.weight, .*: give one of the same kind"
    ):
        cls.from_short(tiny_huggingface.model("roberta"))


def test_a_classifier_refuses_a_mask_of_another_batch():
    short = tiny_huggingface.model("roberta", PoolingformerRobertaForSequenceClassification.short_classes["roberta"])
    model = PoolingformerRobertaForSequenceClassification.from_short(short, **LEVELS)
    with pytest.raises(ValueError, match=r"attention_mask must have a number for each token, \(2, 5\), got \(1, 5\)"):
        model(torch.zeros(2, 5, dtype=torch.long), attention_mask=torch.tensor([[0, 0, 1, 1, 1]]))


def test_pipelines_take_it(made):
    _, folder = made
    model, tokenizer = AutoModelForMaskedLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    found = pipeline("fill-mask", model=model, tokenizer=tokenizer)("the <mask> thing")
    assert len(found) == 5


WITHOUT_FAIRSEQ = """
import sys
sys.modules["fairseq"] = None
import torch
from transformers import AutoModelForMaskedLM
import fairseq_poolingformer.huggingface
model = AutoModelForMaskedLM.from_pretrained({folder!r})
print(model(torch.tensor([[0, 5, 2]])).logits.shape[-1])
"""


def test_no_fairseq_is_needed(made):
    _, folder = made
    script = WITHOUT_FAIRSEQ.format(folder=str(folder))
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(len(tiny_huggingface.vocabulary()))


def test_a_second_level_that_a_folder_lacks_is_initialized(made, tmp_path):
    """Loading builds models without memory first, where the values of the constructor are lost."""
    _, folder = made
    AutoModelForMaskedLM.from_pretrained(folder, pooled_layers="none").save_pretrained(tmp_path)
    model = AutoModelForMaskedLM.from_pretrained(tmp_path, pooled_layers="1-2", ldconv_heads=2)
    attention = model.roberta.encoder.layer[2].attention.self
    for weight in (attention.pooled_k_pool_weight, attention.pooled_v_pool_weight, attention.pooled_q_proj.weight):
        assert weight.std().item() == pytest.approx(0.02, rel=0.3)
    assert not attention.pooled_k_proj.bias.any()
