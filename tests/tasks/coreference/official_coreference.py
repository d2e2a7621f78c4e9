"""Runs the official scorer of CoNLL-2012, where somebody has it, on documents with random chains.

``python -m tests.tasks.coreference.official_coreference SCORER`` makes fixtures/official_coreference.json. SCORER is
scorer.pl of github.com/conll/reference-coreference-scorers, version 8.01; it needs Perl.
"""

import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fairseq_poolingformer.tasks.coreference.data import write_document

FIXTURE = Path(__file__).parent / "fixtures" / "official_coreference.json"
METRICS = {"muc": "muc", "bcub": "b_cubed", "ceafe": "ceaf_e"}
NUMBER = r"([-0-9.e]+)"
LINE = re.compile(rf"Recall: \({NUMBER} / {NUMBER}\).*Precision: \({NUMBER} / {NUMBER}\)")

Clusters = list[list[tuple[int, int]]]
Case = tuple[Clusters, Clusters]


def random_case(rng: random.Random, words: int = 24, repeated: bool = False) -> Case:
    """True and predicted chains: nested, crossing, single, shared and missing mentions; either side may be empty."""
    spans = [(start, start + width) for start in range(words - 6) for width in (1, 1, 2, 3, 5)]
    pool = rng.sample(sorted(set(spans)), rng.randrange(2, 24))
    key = deal(rng, pool[: rng.randrange(len(pool) + 1)])
    response = deal(rng, pool[rng.randrange(len(pool)) :])
    if rng.random() < 0.2:  # nearly right, as good systems are
        response = [list(chain) for chain in key]
        rng.shuffle(response)
    if repeated:
        for chains in (key, response):
            for _ in range(rng.randrange(4)):
                mention = rng.choice(pool)
                chain = rng.choice(chains) if chains else []
                if not any(crosses(mention, other) for other in chain):
                    chain.append(mention)
    return key, response


def deal(rng: random.Random, spans: Sequence[tuple[int, int]]) -> Clusters:
    """Chains of these spans; those that cross another one of their chain are left out."""
    chains: Clusters = [[] for _ in range(rng.randrange(1, 6))]
    for span in spans:
        chain = rng.choice(chains)
        if not any(crosses(span, other) for other in chain):
            chain.append(span)
    return [chain for chain in chains if chain]


def crosses(left: tuple[int, int], right: tuple[int, int]) -> bool:
    return left[0] < right[0] < left[1] < right[1] or right[0] < left[0] < right[1] < left[1]


def write(path: Path, chains: Sequence[Clusters], words: int = 24) -> None:
    """Write documents ``(case/N); part 000`` that have these chains."""
    lines = [
        f"{line}\n"
        for number, clusters in enumerate(chains)
        for line in write_document(f"(case/{number}); part 000", ["word"] * words, [words // 2] * 2, clusters)
    ]
    path.write_text("".join(lines), encoding="utf-8")


def official_counts(scorer: Path, folder: Path, cases: Sequence[Case]) -> list[dict[str, list[float]]]:
    """Each case's four counts by metric: found, to find, right, given."""
    key, response = folder / "key.conll", folder / "response.conll"
    write(key, [case[0] for case in cases])
    write(response, [case[1] for case in cases])
    results: list[dict[str, list[float]]] = [{} for _ in cases]
    for metric, name in METRICS.items():
        command = ["perl", str(scorer), metric, str(key), str(response)]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        number = None
        for line in lines:
            if begins := re.match(r"\(case/(\d+)\); part 000:$", line):
                number = int(begins[1])
            elif number is not None and (counts := LINE.match(line)):
                results[number][name] = [float(value) for value in counts.groups()]
                number = None
    return results


def main(scorer: Path) -> None:
    """Write random entities with the official counts of each document, every third one with repeated mentions."""
    rng = random.Random(8)
    cases = [random_case(rng, repeated=number % 3 == 0) for number in range(60)]
    documents = []
    with tempfile.TemporaryDirectory() as scratch:
        for key, response in cases:  # one by one: of all together, the scorer takes ten repeated mentions at most
            (counts,) = official_counts(scorer, Path(scratch), [(key, response)])
            documents.append({"key": key, "response": response, "counts": counts})
    content = {"made_by": "tests/tasks/coreference/official_coreference.py, with version 8.01", "documents": documents}
    FIXTURE.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
