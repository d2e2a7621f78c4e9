"""Vectors of distances, learned and sinusoidal, and the projected ones that are kept while nothing is trained."""

import pytest
import torch

from fairseq_poolingformer.char_lm.relative_positions import (
    LearnedDistances,
    ProjectedPositions,
    SinusoidalPositions,
    sinusoids,
)
from tests.char_lm.naive_char_lm import sinusoid

CPU = torch.device("cpu")


@pytest.mark.parametrize("farthest", [None, 3])
def test_sinusoids_are_those_of_the_paper(farthest):
    table = sinusoids(9, 10, CPU, farthest)
    expected = [sinusoid(distance if farthest is None else min(distance, farthest), 10) for distance in range(9)]
    torch.testing.assert_close(table, torch.stack(expected), atol=1e-12, rtol=0)
    module = SinusoidalPositions(10, 0.0)
    module.farthest = farthest
    torch.testing.assert_close(module(9, torch.zeros(1)), table.float())


@pytest.mark.parametrize("nearest", [0, 1])
def test_learned_vectors_begin_at_the_nearest_distance_that_is_seen(nearest):
    module = LearnedDistances(5, 3, nearest)
    for number in (1, 4, 6):
        vectors = module(number)
        assert vectors.shape == (number, 3)
        assert torch.equal(vectors[nearest:], module.weight[: number - nearest])
        assert not vectors[:nearest].any()


def projected(seed=0):
    torch.manual_seed(seed)
    module = ProjectedPositions(8, 2).double()
    for bias in (module.content_bias, module.position_bias):
        torch.nn.init.normal_(bias)
    return module


def test_scores_are_the_papers():
    """α((q + u)·k + (q + v)·W_r r), where the operator adds α (q + u)·k itself."""
    module, query, scale = projected(), torch.randn(3, 2, 5, 4, dtype=torch.float64), 0.3
    scores = module(query, 6, scale, sinusoids(9, 8, CPU))
    r = torch.stack([sinusoid(distance, 8) for distance in range(6)]) @ module.r_proj.weight.t()
    for head in range(2):
        table = r[:, 4 * head : 4 * head + 4]
        expected = scale * (query[:, head] + module.position_bias[head]) @ table.t()
        actual = scale * scores.query[:, head] @ scores.by_content[head].t() + scores.alone[head]
        torch.testing.assert_close(actual, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(scores.query, query + module.content_bias[:, None])


@torch.no_grad()
def scores(module, number=6):
    query, positions = torch.zeros(1, 2, 1, 4, dtype=torch.float64), sinusoids(number, 8, CPU, module.farthest)
    kept = [module(query, number, 1.0, None).by_content.clone() for _ in range(2)]
    fresh = module._project(positions)
    return [*kept, fresh]


def test_the_kept_projection_is_that_of_the_weight_at_hand():
    """Whatever changes it: an update in place, another tensor, another dtype's, a new limit, a longer text."""
    module = projected()
    changes = [
        lambda: None,
        lambda: torch.nn.init.normal_(module.r_proj.weight),
        lambda: module.load_state_dict(projected(seed=1).state_dict()),
        lambda: setattr(module.r_proj, "weight", torch.nn.Parameter(torch.randn(8, 8, dtype=torch.float64))),
        lambda: setattr(module, "farthest", 2),
        lambda: setattr(module, "farthest", None),
    ]
    for number, change in enumerate(changes):
        change()
        for length in (6, 40, 3):
            kept, again, fresh = scores(module, length)
            torch.testing.assert_close(kept, fresh, atol=1e-12, rtol=0, msg=lambda m, n=number: f"{n}: {m}")
            assert torch.equal(kept, again)
