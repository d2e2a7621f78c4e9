"""The Python of docs/attention.md, run one block after another at small sizes, and what it computes."""

import re
from pathlib import Path

import torch

from fairseq_poolingformer.attention import Window, band_attention

DOCUMENT = Path(__file__).parents[2] / "docs" / "attention.md"


def run(block: str, names: dict, **replaced: str) -> dict:
    for ours, theirs in replaced.items():
        assert ours in block
        block = block.replace(ours, theirs)
    exec(compile(block, "block", "exec"), names)
    return names


def test_the_examples_compute_what_they_say():
    blocks = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    torch.manual_seed(0)
    names = run(blocks[0], {}, **{"16_384": "300"})
    inputs = [names[name] for name in ("query", "key", "value")]
    expected = band_attention(*inputs, window=Window(128), backend="reference").sum()
    gradients = torch.autograd.grad(expected, inputs)
    torch.testing.assert_close([x.grad for x in inputs], list(gradients), rtol=0, atol=1e-5)

    run(blocks[1], names)
    is_global = names["is_global"]
    alone = names["layer"](names["x"][1:, :700], global_mask=is_global[1:, :700])
    torch.testing.assert_close(names["y"][1:, :700], alone, rtol=0, atol=1e-6)
    assert is_global.sum() == 2
