"""Makes fixtures/official_figures.json: ``python -m tests.tasks.question_answering.make_official_figures FOLDER``.

FOLDER has clones of google-research-datasets' natural-questions and tydiqa, which need absl-py and six, of
mandarjoshi90's triviaqa and of hotpotqa's hotpot. The figures of a clone that is not there are kept.
"""

import json
import sys
import tempfile
from pathlib import Path

from tests.tasks.question_answering import random_answers
from tests.tasks.question_answering.official_scripts import official_figures
from tests.tasks.triviaqa import random_triviaqa

FIXTURE = Path(__file__).parent / "fixtures" / "official_figures.json"
SEEDS, EXAMPLES = (4, 6, 15), 12


def main(folder: Path) -> None:
    """Write the sets and the figures of the official scripts for them."""
    content = json.loads(FIXTURE.read_text(encoding="utf-8"))
    content["made_by"] = (
        "make_official_figures.py: sets from random_answers.py beside it and tests/tasks/triviaqa/"
        "random_triviaqa.py, figures from nq_eval.py (google-research-datasets/natural-questions), tydi_eval.py "
        "(google-research-datasets/tydiqa), triviaqa_evaluation.py (mandarjoshi90/triviaqa) and hotpot_evaluate_v1.py "
        "(hotpotqa/hotpot)"
    )
    for sets_of in (random_answers, random_triviaqa):
        for kind, make in sets_of.MAKERS.items():
            if (folder / sets_of.CLONES[kind]).is_dir():
                content[kind] = _figures(kind, folder / sets_of.CLONES[kind], make, sets_of.write_set)
    FIXTURE.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")


def _figures(kind: str, clone: Path, make, write_set) -> list[dict]:
    sets = [make(seed, EXAMPLES) for seed in SEEDS]
    with tempfile.TemporaryDirectory() as scratch:
        files = [write_set(Path(scratch) / str(number), *one) for number, one in enumerate(sets)]
        figures = official_figures(kind, clone, files)
    return [
        {"gold": gold, "predictions": predictions, "figures": official}
        for (gold, predictions), official in zip(sets, figures, strict=True)
    ]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
