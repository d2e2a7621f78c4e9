"""Vectors of distances, learned and sinusoidal, and the projected ones that are kept while nothing is trained."""

import torch

from fairseq_poolingformer.char_lm.relative_positions import ProjectedPositions, sinusoids

CPU = torch.device("cpu")


def projected(seed=0):
    torch.manual_seed(seed)
    module = ProjectedPositions(8, 2).double()
    for bias in (module.content_bias, module.position_bias):
        torch.nn.init.normal_(bias)
    return module


@torch.no_grad()
def scores(module, number=6):
    query, positions = torch.zeros(1, 2, 1, 4, dtype=torch.float64), sinusoids(number, 8, CPU, module.farthest)
    cached = [module(query, number, 1.0, None).by_content.clone() for _ in range(2)]
    fresh = module._project(positions)
    return [*cached, fresh]


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
            cached, again, fresh = scores(module, length)
            torch.testing.assert_close(cached, fresh, atol=1e-12, rtol=0, msg=lambda m, n=number: f"{n}: {m}")
            assert torch.equal(cached, again)
