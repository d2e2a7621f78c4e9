"""The Python of docs/attention.md, run one block after another at small sizes, and what it computes."""

import re
from pathlib import Path

import torch

from fairseq_poolingformer.attention import Window, band_attention

DOCUMENT = Path(__file__).parents[2] / "docs" / "attention.md"


def run(block: str, given: dict, **replaced: str) -> dict:
    """Execute a block; ``replaced`` is what it says -> what is run."""
    for ours, theirs in replaced.items():
        assert ours in block
        block = block.replace(ours, theirs)
    exec(compile(block, "block", "exec"), given)
    return given


def test_the_examples_compute_what_they_say():
    blocks = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    torch.manual_seed(0)
    given = run(blocks[0], {}, **{"16_384": "300"})
    found = {name: given[name].grad.clone() for name in ("query", "key", "value")}
    for name in found:
        given[name].grad = None
    tensors = given["query"], given["key"], given["value"]
    band_attention(*tensors, window=Window(128), backend="reference").sum().backward()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, given[name].grad, rtol=0, atol=1e-5, msg=name)

    run(blocks[1], given)
    layer, x, y = given["layer"], given["x"], given["y"]
    alone = layer(x[1:, :700], global_mask=given["is_global"][1:, :700])
    torch.testing.assert_close(y[1:, :700], alone, rtol=0, atol=1e-6)
    assert given["is_global"].sum() == 2
