"""Compare what transformers' tests found in its own classes and in this package's, from pytest's junit file.

    python run_scripts/transformers_tests/report.py FILE

The exit status is 1 where a class here fails a test that transformers' own passes, for no reason of ``REASONS``.
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

REASONS = {  # tests, as a regular expression -> why a class here need not pass them
    "test_(attention_outputs|retain_grad_hidden_states_attentions)": "reads the encoder's weights as n × n; here they "
    "are bands",
    "test_model_outputs_equivalence": "takes the largest of weights that are none: level two's on global tokens",
    "test_model_weights_reload_no_missing_tied_weights": "loads a folder whose weights are too small for its settings, "
    "which is refused here",
    "test_(electra_)?model_as_decoder.*": "asks an encoder for a causal mask, which is refused here",
    "test_model_rope_scaling_from_config.*": "reads more tokens than max_position_embeddings, which is refused here",
    "test_generation_tester_mixin_inheritance": "wants a class that generates; encoders have none here",
    "test_resize_position_vector_embeddings": "wants ten positions more in the decoder, which gets as many as the "
    "encoder",
    "test_model_v1_1": "makes two layers, and pooled_layers names others by default",
    "test_inherits_generation_mixin": "looks at a class's own bases; GenerationMixin comes through transformers' class",
}
Outcomes = dict[str, tuple[str, str]]  # test -> "passed", "failed" or "skipped", and the message


def outcomes(path: Path) -> dict[str, Outcomes]:
    """The outcome of each test by its class, without ``Test`` before its name."""
    found: dict[str, Outcomes] = {}
    for case in ElementTree.parse(path).iter("testcase"):
        bad = next((child for child in case if child.tag in ("failure", "error")), None)
        skipped = case.find("skipped")
        outcome = "failed" if bad is not None else "skipped" if skipped is not None else "passed"
        element = bad if bad is not None else skipped
        message = "" if element is None else (element.get("message") or "").splitlines()[0]
        name = case.get("classname", "").rpartition(".")[2].removeprefix("Test")
        found.setdefault(name, {})[case.get("name", "")] = outcome, message
    return found


def reason(test: str) -> str | None:
    """Why a class here need not pass a test, or None."""
    return next((text for pattern, text in REASONS.items() if re.fullmatch(pattern, test)), None)


def main(path: str) -> int:
    """Print a table of counts, and each difference with its reason or its message."""
    found = outcomes(Path(path))
    print("| classes of | passed | failed | skipped | failed here alone |\n|---|---|---|---|---|")
    unexplained = 0
    lines = []
    for start in (name for name in found if not name.startswith("Poolingformer")):
        theirs, ours = found[start], found.get(f"Poolingformer{start}", {})
        alone = [test for test in ours if ours[test][0] == "failed" and theirs.get(test, ("passed",))[0] != "failed"]
        for name, tests, number in ((start, theirs, ""), (f"Poolingformer{start}", ours, len(alone))):
            counts = Counter(outcome for outcome, _ in tests.values())
            print(f"| {name} | {counts['passed']} | {counts['failed']} | {counts['skipped']} | {number} |")
        for test in alone:
            unexplained += reason(test) is None
            lines.append(f"{start}: {test}: {reason(test) or 'UNEXPLAINED: ' + ours[test][1]}")
        lines += [
            f"{start}: {test}: skipped here alone: {ours[test][1]}"
            for test in ours
            if ours[test][0] == "skipped" and theirs.get(test, ("skipped",))[0] == "passed"
        ]
    print("\n" + "\n".join(lines))
    return 1 if unexplained or not found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
