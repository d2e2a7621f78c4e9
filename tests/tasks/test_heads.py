import copy
import math

import pytest
import torch
from fairseq.logging import metrics

from fairseq_poolingformer.tasks.classification.task import ClassificationHead, DocumentClassificationTask
from fairseq_poolingformer.tasks.shared.task import DocumentTaskCriterion
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


def naive_wikihop(head, features, example):
    """The candidates' logits, joined over the example's segments."""
    rows = [row for row in range(6) if EXAMPLE[row] == example]
    places = range(example + 1, example + 1 + COUNTS[example])
    logits = [sum(head.score.weight[0] @ features[row, k] + head.score.bias[0] for row in rows) for k in places]
    return torch.stack(logits) / (len(rows) if head.join == "mean" else 1)


def naive_classification(head, features, example):
    """The logits of the mean of the first tokens."""
    rows = [features[row, 0] for row in range(6) if EXAMPLE[row] == example]
    hidden = torch.tanh(head.dense.weight @ (sum(rows) / len(rows)) + head.dense.bias)
    return head.out_proj.weight @ hidden + head.out_proj.bias


@pytest.mark.parametrize(
    ("head", "task", "naive", "target"),
    [
        *((WikihopHead(5, join=join), WikihopTask, naive_wikihop, {"answer": [2, 0, -1]}) for join in ("sum", "mean")),
        (ClassificationHead(5, 3), DocumentClassificationTask, naive_classification, {"label": [2, -1, 1]}),
    ],
)
def test_logits_loss_and_gradients_are_those_of_loops_over_examples(head, task, naive, target):
    head = copy.deepcopy(head).double()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    inputs = (EXAMPLE, 3, *((wikihop_places(), torch.tensor(COUNTS)) if task is WikihopTask else ()))
    features, (((name, wanted),)) = features_of(), target.items()
    output = head(features, *inputs)
    loss, sums = task.loss(output, {name: torch.tensor(wanted)})
    (gradient,) = torch.autograd.grad(loss, features)
    again = features.detach().requires_grad_()
    total, right = 0.0, 0
    for example, number in enumerate(wanted):
        logits = naive(head, again, example)
        assert torch.allclose(output[example, : len(logits)], logits)
        assert output[example, len(logits) :].eq(-math.inf).all()
        if number >= 0:
            total = total - logits[number] + logits.logsumexp(0)
            right += int(logits.argmax()) == number
    assert torch.allclose(loss, total)
    assert torch.allclose(gradient, torch.autograd.grad(total, again)[0])
    assert {name: int(value) for name, value in sums.items()} == {"_accuracy_correct": right, "_accuracy_total": 2}
    half = head.to(torch.bfloat16)(features.detach().to(torch.bfloat16), *inputs)
    assert half.dtype == torch.float32, "half precision sums in float32"


def test_two_labels_have_the_f1_of_the_second():
    """Two of five known labels are right and "true", one is missed, one found where there is none."""
    logits = torch.eye(2)[[1, 1, 1, 0, 0, 1]]
    _, sums = DocumentClassificationTask.loss(logits, {"label": torch.tensor([1, 1, 0, 1, 0, -1])})
    assert sums["_f1_correct"] / sums["_f1_total"] == 2 * 2 / (2 * 2 + 1 + 1)
    loss, sums = DocumentClassificationTask.loss(logits[3:4], {"label": torch.tensor([0])})
    with metrics.aggregate() as logged:
        DocumentTaskCriterion.reduce_metrics([{"loss": loss, "sample_size": 1, **sums}])
    figures = logged.get_smoothed_values()
    assert (figures["accuracy"], figures["f1"]) == (1, 0), "neither predicted nor there"


@pytest.mark.parametrize("layer", ["dense", "out_proj"])
@torch.no_grad()
def test_classification_drops_what_each_layer_reads(layer):
    head, features, read = ClassificationHead(16, 3, dropout=0.25), torch.randn(40, 2, 16), []
    getattr(head, layer).register_forward_pre_hook(lambda module, inputs: read.append(inputs[0]))
    if layer == "out_proj":  # what it reads depends on nothing that was dropped before
        torch.nn.init.normal_(head.dense.bias)
        torch.nn.init.zeros_(head.dense.weight)

    def draw():
        head(features, torch.arange(40), 40)
        return read.pop()

    head.eval()
    whole = draw()
    head.train()
    assert_dropped(draw, whole, 0.25)
