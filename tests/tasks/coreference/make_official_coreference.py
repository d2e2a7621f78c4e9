"""Makes fixtures/official_coreference.json: ``python -m tests.tasks.coreference.make_official_coreference SCORER``.

SCORER is scorer.pl of github.com/conll/reference-coreference-scorers, version 8.01; it needs Perl.
"""

import json
import random
import sys
import tempfile
from pathlib import Path

from tests.tasks.coreference.official_coreference import official_counts, random_case

FIXTURE = Path(__file__).parent / "fixtures" / "official_coreference.json"


def main(scorer: Path) -> None:
    """Write random entities with the official counts of each document, every third one with repeated mentions."""
    rng = random.Random(8)
    cases = [random_case(rng, repeated=number % 3 == 0) for number in range(60)]
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        for key, response in cases:  # one by one: of all together, the scorer takes ten repeated mentions at most
            (counts,) = official_counts(scorer, Path(scratch), [(key, response)])
            found.append({"key": key, "response": response, "counts": counts})
    content = {"made_by": "tests/tasks/coreference/make_official_coreference.py, with version 8.01", "documents": found}
    FIXTURE.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
