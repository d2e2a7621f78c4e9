"""The heads of the downstream tasks in float64, against loops over examples, segments and tokens."""

import math

import pytest
import torch

from fairseq_poolingformer.tasks.classification.task import ClassificationHead, DocumentClassificationTask
from fairseq_poolingformer.tasks.wikihop.task import WikihopHead, WikihopTask
from tests.dropped import assert_dropped

EXAMPLE = torch.tensor([0, 0, 0, 1, 2, 2])  # six segments of three examples
COUNTS = [3, 1, 4]


def features_of(tokens=9, width=5):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(6, tokens, width, generator=generator, dtype=torch.float64).requires_grad_()


def wikihop_places():
    """The candidates at places that differ from example to example, and are the same in each of its segments."""
    candidate = torch.zeros(6, 9, dtype=torch.long)
    for row, example in enumerate(EXAMPLE.tolist()):
        for number in range(COUNTS[example]):
            candidate[row, example + 1 + number] = number + 1
    return candidate


@pytest.mark.parametrize("join", ["sum", "mean"])
def test_wikihop_is_the_joined_logit_and_cross_entropy_by_hand(join):
    torch.manual_seed(0)
    head = WikihopHead(5, join=join).double()
    torch.nn.init.normal_(head.score.weight)
    features, answers = features_of(), [2, 0, -1]
    num_candidates = torch.tensor(COUNTS)
    output = head(features, EXAMPLE, 3, wikihop_places(), num_candidates)
    loss, sums = WikihopTask.loss(output, {"answer": torch.tensor(answers)})
    (gradient,) = torch.autograd.grad(loss, features)

    again = features.detach().requires_grad_()
    total, right = 0.0, 0
    for example, (count, answer) in enumerate(zip(COUNTS, answers, strict=True)):
        logits = []
        for number in range(count):
            rows = [row for row in range(6) if EXAMPLE[row] == example]
            found = [head.score.weight[0] @ again[row, example + 1 + number] + head.score.bias[0] for row in rows]
            logits.append(sum(found) / (len(found) if join == "mean" else 1))
        assert torch.allclose(output[example, :count], torch.stack(logits))
        assert output[example, count:].eq(-math.inf).all()
        if answer >= 0:
            total = total - logits[answer] + sum(logit.exp() for logit in logits).log()
            right += max(range(count), key=lambda k: logits[k].item()) == answer
    assert torch.allclose(loss, total)
    assert torch.allclose(gradient, torch.autograd.grad(total, again)[0])
    assert {name: int(value) for name, value in sums.items()} == {"_accuracy_correct": right, "_accuracy_total": 2}


def test_classification_reads_the_mean_of_the_first_tokens():
    torch.manual_seed(0)
    head = ClassificationHead(5, 3).double()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    features, labels = features_of(), [2, -1, 1]
    output = head(features, EXAMPLE, 3)
    loss, sums = DocumentClassificationTask.loss(output, {"label": torch.tensor(labels)})
    total, right = 0.0, 0
    for example, label in enumerate(labels):
        rows = [features[row, 0] for row in range(6) if EXAMPLE[row] == example]
        mean = sum(rows) / len(rows)
        hidden = torch.tanh(head.dense.weight @ mean + head.dense.bias)
        logits = head.out_proj.weight @ hidden + head.out_proj.bias
        assert torch.allclose(output[example], logits)
        if label >= 0:
            total = total - logits[label] + logits.exp().sum().log()
            right += int(logits.argmax()) == label
    assert torch.allclose(loss, total)
    assert {name: int(value) for name, value in sums.items()} == {"_accuracy_correct": right, "_accuracy_total": 2}


def test_half_precision_sums_in_float32():
    head = WikihopHead(5).to(torch.bfloat16)
    places, counts = wikihop_places(), torch.tensor(COUNTS)
    assert head(features_of().to(torch.bfloat16), EXAMPLE, 3, places, counts).dtype == torch.float32
    classifier = ClassificationHead(5, 2).to(torch.bfloat16)
    assert classifier(features_of().to(torch.bfloat16), EXAMPLE, 3).dtype == torch.float32


@pytest.mark.parametrize("layer", ["dense", "out_proj"])
@torch.no_grad()
def test_classification_drops_what_each_layer_reads(layer):
    head, features, seen = ClassificationHead(16, 3, dropout=0.25), torch.randn(40, 2, 16), []
    getattr(head, layer).register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    if layer == "out_proj":  # what it reads depends on nothing that was dropped before
        torch.nn.init.normal_(head.dense.bias)
        torch.nn.init.zeros_(head.dense.weight)

    def read():
        head(features, torch.arange(40), 40)
        return seen.pop()

    head.eval()
    whole = read()
    head.train()
    assert_dropped(read, whole, 0.25)
