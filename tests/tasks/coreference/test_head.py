import numpy as np
import pytest
import torch

from fairseq_poolingformer.tasks.coreference import head as coreference_head
from fairseq_poolingformer.tasks.coreference.data import merge_clusters
from fairseq_poolingformer.tasks.coreference.head import CoreferenceHead, candidate_spans, keep_spans, marginal_loss
from tests.tasks.coreference import naive_coreference
from tests.tasks.coreference.official_coreference import crosses


def test_spans_are_kept_by_score_unless_they_cross_a_better_one():
    rng = np.random.default_rng(0)
    for _ in range(50):
        sentences = np.sort(rng.integers(0, 3, size=rng.integers(1, 25)))
        spans = candidate_spans(sentences, 6)
        scores = rng.integers(0, 30, size=len(spans)) / 3  # with ties
        limit = int(rng.integers(1, 15))
        best = []
        for number in sorted(range(len(spans)), key=lambda number: (-scores[number], number)):
            if len(best) < limit and not any(crosses(spans[number].tolist(), spans[other].tolist()) for other in best):
                best.append(number)
        assert keep_spans(spans, scores, limit).tolist() == sorted(best)


def test_entities_that_share_a_mention_become_one():
    rows = [(0, 1, 1), (2, 3, 1), (4, 5, 2), (6, 7, 3), (2, 3, 2), (6, 7, 3), (8, 9, 4), (4, 5, 4)]
    merged = merge_clusters(np.array(rows))
    entities = {}
    for start, _, entity in merged.tolist():
        entities.setdefault(entity, set()).add(start)
    assert entities == {1: {0, 2, 4, 8}, 2: {6}}
    assert merge_clusters(np.zeros((0, 3), np.int64)).shape == (0, 3)


WIDTH = 6


def random_document(rng, segments):
    """Inputs of the head for a document whose words have one to three pieces and whose sentences one to five words."""
    pieces = rng.integers(1, 4, size=rng.integers(10, 16))
    ends = np.cumsum(pieces)
    cuts = np.sort(rng.choice(np.arange(1, ends[-1]), segments - 1, replace=False))
    document = {
        "segment_sizes": np.diff(np.concatenate([[0], cuts, ends[-1:]])),
        "word_starts": ends - pieces,
        "word_ends": ends,
        "sentences": np.repeat(np.arange(len(pieces)), rng.integers(1, 6, size=len(pieces)))[: len(pieces)],
        "speakers": rng.integers(0, 2, size=len(pieces)),
    }
    return {name: torch.from_numpy(value) for name, value in document.items()} | {"genre": int(rng.integers(8))}


def batch(documents, generator):
    """Padded features of all segments, the head's other arguments, and each document's own features."""
    sizes = [size for document in documents for size in document["segment_sizes"].tolist()]
    features = torch.randn(len(sizes), max(sizes) + 3, WIDTH, dtype=torch.float64, generator=generator)
    rows = torch.cat([torch.full_like(document["segment_sizes"], k) for k, document in enumerate(documents)])
    inputs = {name: [document[name] for document in documents] for name in documents[0] if name != "genre"}
    inputs |= {"example": rows, "num_examples": len(documents)}
    inputs["genre"] = torch.tensor([document["genre"] for document in documents])
    tokens = [
        torch.cat([features[row, 1 : 1 + sizes[row]] for row in torch.nonzero(rows == k).flatten().tolist()])
        for k in range(len(documents))
    ]
    return features, inputs, tokens


def make_head(seed, **options):
    torch.manual_seed(seed)
    options = {"hidden": 5, "feature_size": 7, "max_span_width": 4, "max_antecedents": 3, "dropout": 0.0} | options
    head = CoreferenceHead(WIDTH, **options).double()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return head


def random_mentions(rng, output):
    """Entities of some kept spans, and of one span that no head keeps."""
    rows = [(*span, int(rng.integers(1, 4))) for span in output.spans.tolist() if rng.random() < 0.7]
    return torch.tensor([*rows, (0, 99, 1)])


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_equals_loops_over_spans_and_antecedents(depth, monkeypatch):
    """Scores, loss and every gradient; blocks so small that there are several of each kind."""
    monkeypatch.setattr(coreference_head, "SPANS_OF_A_BLOCK", 7)
    monkeypatch.setattr(coreference_head, "PAIRS_OF_A_BLOCK", 2 * depth)  # also fewer than a span has
    rng, generator = np.random.default_rng(depth), torch.Generator().manual_seed(depth)
    head = make_head(depth, depth=depth)
    documents = [random_document(rng, segments) for segments in (1, 4)]
    features, inputs, tokens = batch(documents, generator)
    output = head(features, **inputs)
    mentions = [random_mentions(rng, document) for document in output]

    expected = 0.0
    for document, pieces, (spans, numbers, scores, *_), rows in zip(documents, tokens, output, mentions, strict=True):
        naive_spans, naive = naive_coreference.fine_scores(head, pieces, document)
        assert list(map(tuple, spans.tolist())) == naive_spans
        assert len(spans) == int(0.4 * len(document["sentences"]))
        for i, of_span in enumerate(naive):
            row = {j: score for j, score in zip(numbers[i].tolist(), scores[i, 1:], strict=True) if score > -torch.inf}
            assert row.keys() == of_span.keys()
            torch.testing.assert_close(list(row.values()), [of_span[j] for j in row], rtol=1e-10, atol=1e-10)
            assert scores[i, 0] == 0
        expected = expected + naive_coreference.loss(naive_spans, naive, rows)
    loss = marginal_loss(output, mentions)
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-10)
    buckets = coreference_head._bucket(torch.arange(200)).tolist()  # of distances that tiny documents do not have, too
    assert buckets == [naive_coreference.bucket(distance) for distance in range(200)]
    names, parameters = zip(*head.named_parameters(), strict=True)
    ours = torch.autograd.grad(loss, parameters, allow_unused=True)
    theirs = torch.autograd.grad(expected, parameters, allow_unused=True)
    for name, actual, wanted in zip(names, ours, theirs, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-8, atol=1e-10, msg=lambda text, name=name: f"{name}: {text}")


def test_a_document_of_one_word_and_one_without_mentions_have_a_loss():
    head = make_head(1)
    word = {name: torch.tensor([value]) for name, value in {"word_starts": 0, "word_ends": 2, "sentences": 0}.items()}
    word |= {"segment_sizes": torch.tensor([2]), "speakers": torch.tensor([0]), "genre": 0}
    several = random_document(np.random.default_rng(2), 2)
    features, inputs, _ = batch([word, several], torch.Generator().manual_seed(1))
    output = head(features, **inputs)
    assert output[0].spans.tolist() == [[0, 1]]
    assert output[0].scores.tolist() == [[0, -torch.inf]]
    nothing = torch.zeros(0, 3, dtype=torch.long)
    loss = marginal_loss(output, [nothing, nothing])
    torch.testing.assert_close(loss, output[1].scores.logsumexp(1).sum())
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in head.parameters())


@torch.no_grad()
def test_dropout_is_of_features_of_both_sides_of_the_coarse_scores_and_of_hidden_layers():
    head, document = make_head(4, dropout=0.25), random_document(np.random.default_rng(4), 2)
    modules = [module for module in head.modules() if isinstance(module, torch.nn.Dropout)]
    assert [module.p for module in modules] == [0.25] * 4  # one of its own in each of the three networks
    shapes = []
    head.dropout.register_forward_hook(lambda module, inputs, output: shapes.append(tuple(output.shape)))
    features, inputs, _ = batch([document], torch.Generator().manual_seed(4))
    (output,) = head(features, **inputs)
    spans, antecedents = output.numbers.shape
    width = 3 * WIDTH + 7
    assert len(shapes) == 7
    assert shapes[0][1] == 7  # the widths of all spans
    assert shapes[1:] == [(spans, 7), (spans, width), (spans, width), (10, 7), *[(spans, antecedents, 4 * 7)] * 2]


def test_half_precision_is_close_and_finite():
    head = make_head(3)
    document = random_document(np.random.default_rng(3), 2)
    features, inputs, _ = batch([document], torch.Generator().manual_seed(3))
    expected = head(features, **inputs)[0]
    half = head.to(torch.bfloat16)(features.to(torch.bfloat16), **inputs)[0]
    assert half.scores.dtype == torch.float32
    assert half.scores[:, 1:].isfinite().equal(half.numbers < torch.arange(len(half.spans))[:, None])
    assert len(half.spans) == len(expected.spans)


@pytest.mark.parametrize("train_all_spans", [False, True])
def test_spans_that_are_not_kept_have_gradients_for_their_own_loss_alone(train_all_spans):
    head, document = make_head(5, train_all_spans=train_all_spans), random_document(np.random.default_rng(5), 1)
    features, inputs, _ = batch([document], torch.Generator().manual_seed(5))
    (output,) = head(features, **inputs)
    assert len(output.spans) < len(output.candidates) == len(output.mention_scores)
    assert output.mention_scores.requires_grad == train_all_spans
    candidates = {tuple(span) for span in output.candidates.tolist()}
    assert {tuple(span) for span in output.spans.tolist()} < candidates
