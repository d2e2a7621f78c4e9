"""Makes fixtures/official_figures.json: ``python -m tests.qa.make_official_figures FOLDER``.

FOLDER has clones of google-research-datasets' natural-questions and tydiqa; absl-py and six must be installed.
"""

import json
import sys
import tempfile
from pathlib import Path

from tests.qa.official_scripts import official_figures
from tests.qa.random_answers import CLONES, MAKERS, write_set

FIXTURE = Path(__file__).parent / "fixtures" / "official_figures.json"
SEEDS, EXAMPLES = (4, 6, 15), 12


def main(folder: Path) -> None:
    """Write the sets and the figures of the official scripts for them."""
    content = {
        "made_by": "tests/qa/make_official_figures.py: sets from tests/qa/random_answers.py, figures from nq_eval.py "
        "(google-research-datasets/natural-questions) and tydi_eval.py (google-research-datasets/tydiqa)"
    }
    for kind, make in MAKERS.items():
        sets = [make(seed, EXAMPLES) for seed in SEEDS]
        with tempfile.TemporaryDirectory() as scratch:
            files = [write_set(Path(scratch) / str(number), *one) for number, one in enumerate(sets)]
            figures = official_figures(kind, folder / CLONES[kind], files)
        content[kind] = [
            {"gold": gold, "predictions": predictions, "figures": official}
            for (gold, predictions), official in zip(sets, figures, strict=True)
        ]
    FIXTURE.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
