"""The question answering head against loops over tokens."""

import pytest
import torch

from fairseq_poolingformer.tasks.question_answering.head import QuestionAnsweringHead

WIDTH = 6
# rows: two paragraphs with a gap; padding; no paragraph; one token
PARAGRAPHS = torch.tensor([[0, 0, 1, 1, 0, 2, 2, 2], [0, 0, 1, 2, 3, 3, 0, 0], [0] * 8, [0, 0, 1, 0, 0, 0, 0, 0]])
SPANS = torch.tensor(
    [[1, 0, 1, 1, 1, 1, 1, 1], [1, 0, 1, 1, 1, 1, 0, 0], [1, 0, 1, 1, 0, 0, 0, 0], [1, 0, 1] + [0] * 5]
)
SPANS = SPANS.bool()


@pytest.fixture
def head():
    torch.manual_seed(0)
    head = QuestionAnsweringHead(WIDTH)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    return head.double()


def naive(head, features):
    """Start, end, paragraph and type logits, a token and a paragraph at a time."""
    start, end, paragraph, kind = [], [], [], []
    for row, ids, spans in zip(features, PARAGRAPHS.tolist(), SPANS.tolist(), strict=True):
        both = [(head.span.weight @ x + head.span.bias).tolist() for x in row]
        start.append([s if allowed else -torch.inf for (s, _), allowed in zip(both, spans, strict=True)])
        end.append([e if allowed else -torch.inf for (_, e), allowed in zip(both, spans, strict=True)])
        means = []
        for p in range(1, max(ids) + 1):
            tokens = [x for x, number in zip(row, ids, strict=True) if number == p]
            means.append(sum(tokens) / len(tokens))
        logits = [(head.paragraph.weight @ x + head.paragraph.bias).item() for x in [row[0], *means]]
        paragraph.append(logits + [-torch.inf] * (4 - len(logits)))
        document = sum(means) / len(means) if means else row[0]
        kind.append((head.answer_type.weight @ document + head.answer_type.bias).tolist())
    return [torch.tensor(x, dtype=torch.float64) for x in (start, end, paragraph, kind)]


def fields(logits):
    return logits.start, logits.end, logits.paragraph, logits.answer_type


@pytest.mark.parametrize("given", [None, 3])
def test_equals_loops_over_tokens(head, given):
    features = torch.randn(4, 8, WIDTH, dtype=torch.float64)
    actual = head.eval()(features, PARAGRAPHS, SPANS, given)
    for found, expected in zip(fields(actual), naive(head, features), strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)


def test_paragraph_numbers_that_no_row_has_are_no_candidates(head):
    features = torch.randn(4, 8, WIDTH, dtype=torch.float64)
    logits = head.eval()(features, PARAGRAPHS, SPANS, 7)
    assert logits.paragraph.shape == (4, 8)
    assert logits.paragraph[:, 4:].eq(-torch.inf).all()
    assert torch.equal(logits.answer_type, head(features, PARAGRAPHS, SPANS).answer_type)


def test_a_batch_without_paragraphs_has_only_none(head):
    features = torch.randn(4, 8, WIDTH, dtype=torch.float64)
    logits = head.eval()(features, torch.zeros_like(PARAGRAPHS), SPANS)
    expected = features[:, :1] @ head.paragraph.weight.T + head.paragraph.bias
    torch.testing.assert_close(logits.paragraph.double(), expected.squeeze(-1), atol=1e-5, rtol=1e-5)
    expected = features[:, 0] @ head.answer_type.weight.T + head.answer_type.bias
    torch.testing.assert_close(logits.answer_type.double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_loses_only_its_own_rounding(head, dtype):
    """A paragraph of 4,000 tokens whose sum float16 cannot hold; the logits are as good as those of rounded inputs."""
    torch.manual_seed(1)
    features = (torch.randn(1, 4003, WIDTH) + 40).to(dtype)
    ids = torch.zeros(1, 4003, dtype=torch.long)
    ids[:, 3:] = 1
    mask = ids.bool()
    mask[:, 0] = True
    found = head.to(dtype)(features, ids, mask)
    expected = head.double()(features.double(), ids, mask)
    for a, b in zip(fields(found), fields(expected), strict=True):
        assert torch.isfinite(a[~b.isinf()]).all()
        torch.testing.assert_close(a, b, rtol=0.02, atol=100 * torch.finfo(dtype).eps)


def test_gradients_are_finite_and_padding_gets_none(head):
    features = torch.randn(4, 8, WIDTH, dtype=torch.float64, requires_grad=True)
    logits = head(features, PARAGRAPHS, SPANS)
    sum(x.log_softmax(-1)[:, 0].sum() for x in fields(logits)).backward()
    assert torch.isfinite(features.grad).all()
    outside = ~SPANS & PARAGRAPHS.eq(0)
    assert features.grad[outside].eq(0).all()
    assert features.grad[SPANS].ne(0).any(-1).all()
