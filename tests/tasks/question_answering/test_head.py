import itertools
import math

import numpy as np
import pytest
import torch

from fairseq_poolingformer.tasks.question_answering.head import (
    AnswerLogits,
    BestAnswers,
    QuestionAnsweringHead,
    best_answers,
    mean_log_probabilities,
)

WIDTH = 6
# rows: two paragraphs with a gap; padding; no paragraph; one token
PARAGRAPHS = torch.tensor([[0, 0, 1, 1, 0, 2, 2, 2], [0, 0, 1, 2, 3, 3, 0, 0], [0] * 8, [0, 0, 1, 0, 0, 0, 0, 0]])
SPANS = torch.tensor([[digit == "1" for digit in row] for row in ("10111111", "10111100", "10110000", "10100000")])
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
        for logits, side in ((start, 0), (end, 1)):
            logits.append([x[side] if allowed else -torch.inf for x, allowed in zip(both, spans, strict=True)])
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


@pytest.mark.parametrize("num_paragraphs", [None, 3])
def test_equals_loops_over_tokens(head, num_paragraphs):
    features = torch.randn(4, 8, WIDTH, dtype=torch.float64)
    actual = fields(head.eval()(features, PARAGRAPHS, SPANS, num_paragraphs))
    for logits, expected in zip(actual, naive(head, features), strict=True):
        assert logits.dtype == torch.float32
        torch.testing.assert_close(logits.double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_loses_only_its_own_rounding(head, dtype):
    """A paragraph of 4,000 tokens whose sum float16 cannot hold; the logits are as good as those of rounded inputs."""
    torch.manual_seed(1)
    features = (torch.randn(1, 4003, WIDTH) + 40).to(dtype)
    ids = torch.zeros(1, 4003, dtype=torch.long)
    ids[:, 3:] = 1
    mask = ids.bool()
    mask[:, 0] = True
    logits = head.to(dtype)(features, ids, mask)
    expected = head.double()(features.double(), ids, mask)
    for a, b in zip(fields(logits), fields(expected), strict=True):
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


DOCUMENT = 4  # <s> q </s> </s>, then the document, </s>


def random_segments(seed, rows=12, length=24):
    """Logits and masks of random segments: rows with and without paragraphs, with gaps, padding and no document."""
    rng = np.random.default_rng(seed)
    ids, mask, has = np.zeros((rows, length), np.int64), np.zeros((rows, length), bool), rng.random(rows) < 0.75
    mask[:, 0] = True
    for row in range(rows):
        end = int(rng.integers(DOCUMENT, length))
        mask[row, DOCUMENT:end] = True
        if has[row] and end > DOCUMENT:
            cuts = np.unique(rng.integers(DOCUMENT, end + 1, 5))
            paragraphs = [(a, b) for a, b in itertools.pairwise(cuts) if rng.random() < 0.8]
            for number, (a, b) in enumerate(paragraphs, 1):
                ids[row, a:b] = number
    ids, mask, has = torch.from_numpy(ids), torch.from_numpy(mask), torch.from_numpy(has)
    torch.manual_seed(seed)
    count = int(ids.max())
    is_there = torch.arange(count + 1) <= ids.max(1).values.unsqueeze(1)
    logits = AnswerLogits(
        start=(3 * torch.randn(rows, length)).masked_fill(~mask, -torch.inf),
        end=(3 * torch.randn(rows, length)).masked_fill(~mask, -torch.inf),
        paragraph=(3 * torch.randn(rows, count + 1)).masked_fill(~is_there, -torch.inf),
        answer_type=3 * torch.randn(rows, 5),
    )
    return logits, ids, mask, has


def naive_answer(row, logits, ids, mask, has, longest):
    """Best answer of a row as a dictionary, or None: every paragraph, every span."""

    def odds(x):
        probabilities = torch.exp(x[row].double()) / torch.exp(x[row].double()).sum()
        return [math.log(p / probabilities[0]) if p > 0 else -math.inf for p in probabilities]

    start, end = odds(logits.start), odds(logits.end)
    paragraph, (_, short, yes, no, long) = odds(logits.paragraph), odds(logits.answer_type)
    ids, tokens = ids[row].tolist(), [t for t in range(1, mask.size(1)) if mask[row, t]]
    if has[row]:
        regions = {p: ([t for t in tokens if ids[t] == p], paragraph[p]) for p in sorted(set(ids) - {0})}
    else:
        regions = {1: (tokens, 0.0)} if tokens else {}
    best = None
    for number, (inside, of_paragraph) in regions.items():
        spans = [(a, b) for a in inside for b in inside if a <= b < a + longest]
        value, (a, b) = max((start[a] + end[b], (a, b)) for a, b in spans)
        score = of_paragraph + max(yes, no, long, short + value)
        if best is None or score > best["score"]:
            any_type = math.log(sum(math.exp(x) for x in (short, yes, no, long)))
            best = {"score": score, "paragraph": number, "start": a, "end": b, "long_score": of_paragraph + any_type}
            neither = math.log(1 + math.exp(long))
            best |= {"span_score": value + short - neither, "yes_score": yes - neither, "no_score": no - neither}
    return best


@pytest.mark.parametrize("longest", [1, 4, 30])
@pytest.mark.parametrize("seed", range(5))
def test_best_answers_equal_loops_over_all_spans(seed, longest):
    logits, ids, mask, has = random_segments(seed)
    answers = best_answers(mean_log_probabilities([logits]), ids, mask, mask, has, longest)
    for row in range(len(has)):
        expected = naive_answer(row, logits, ids, mask, has, longest)
        if expected is None:
            assert answers.score[row] == -torch.inf
            continue
        actual = {name: getattr(answers, name)[row].item() for name in expected}
        assert actual == pytest.approx(expected, abs=1e-4)


def test_a_span_begins_with_a_token_that_has_text():
    """As a paragraph's marker, or white space alone, has none: an answer of such tokens would be empty."""
    logits, ids, mask, has = random_segments(1)
    has_text = mask & (torch.arange(mask.size(1)) % 3 > 0)
    answers = best_answers(mean_log_probabilities([logits]), ids, mask, has_text, has)
    without = AnswerLogits(logits.start.masked_fill(~has_text, -1e4), logits.end, logits.paragraph, logits.answer_type)
    without.start[:, 0] = logits.start[:, 0]
    changed = 0
    for row in range(len(has)):
        answer = naive_answer(row, without, ids, mask, has, 30)
        if answer is not None and answer["span_score"] > -1e3:
            assert has_text[row, answers.start[row]]
            assert (answers.start[row].item(), answers.end[row].item()) == (answer["start"], answer["end"])
            changed += answer["start"] != naive_answer(row, logits, ids, mask, has, 30)["start"]
    assert changed


def test_an_ensemble_averages_probabilities():
    each = [random_segments(0)[0], random_segments(0)[0]]
    torch.manual_seed(9)
    each[1] = AnswerLogits(*(x + torch.randn_like(x) for x in vars(each[1]).values()))
    mean = mean_log_probabilities(each)
    for name in ("start", "end", "paragraph", "answer_type"):
        expected = (getattr(each[0], name).softmax(-1) + getattr(each[1], name).softmax(-1)) / 2
        torch.testing.assert_close(getattr(mean, name).exp(), expected)


def segments_to_merge(draw=0):
    """Answers of three batches of segments, with everything :meth:`BestAnswers.add` takes."""
    rng = np.random.default_rng(draw)
    for seed in range(3):
        logits, ids, mask, has = random_segments(seed)
        answers = best_answers(mean_log_probabilities([logits]), ids, mask, mask, has)
        paragraph = torch.from_numpy(rng.integers(0, 9, 12))
        batch = {
            "document_start": torch.full((12,), DOCUMENT),
            "first_paragraph": paragraph,
            "document_has_paragraphs": has,
        }
        yield answers, rng.integers(0, 6, 12), rng.integers(0, 100, 12), batch


@pytest.mark.parametrize("draw", range(4))
def test_merging_keeps_the_best_segment_of_each_example(draw):
    """Several segments of a batch are of one example, the best of them in any place."""
    best, expected = BestAnswers(7), {}
    for answers, example, first_token, batch in segments_to_merge(draw):
        best.add(answers, example, first_token, batch)
        for row, number in enumerate(example.tolist()):
            value = {name: getattr(answers, name)[row].item() for name in vars(answers)}
            if value["score"] > expected.get(number, (-math.inf,))[0]:
                shift = first_token[row] - DOCUMENT
                paragraph = batch["first_paragraph"][row].item() + value["paragraph"] - 1
                paragraph = paragraph if batch["document_has_paragraphs"][row] else -1
                span = (value["start"] + shift, value["end"] + shift + 1)
                expected[number] = (value["score"], paragraph, *span, value["span_score"])
    names = ["score", "paragraph", "first_token", "end_token", "span_score"]
    for number, record in enumerate(best.records):
        assert tuple(record[names].item()) == expected.get(number, (-math.inf, -1, -1, -1, 0.0))
    answers.score[3] = torch.nan
    with pytest.raises(ValueError, match=f"example {example[3]} is NaN.*bf16"):
        best.add(answers, example, first_token, batch)
