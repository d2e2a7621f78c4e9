"""Makes fixtures/official_figures.json: ``python -m tests.tasks.question_answering.make_official_figures FOLDER``.

FOLDER has clones of google-research-datasets' natural-questions and tydiqa, which need absl-py and six, of
mandarjoshi90's triviaqa and of hotpotqa's hotpot. The figures of a clone that is not there are kept.
"""

import json
import sys
import tempfile
from pathlib import Path

from tests.tasks.question_answering.official_scripts import official_figures
from tests.tasks.question_answering.test_scoring import FIXTURE, KINDS

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
    for kind, (_, make, write, clone) in KINDS.items():
        if (folder / clone).is_dir():
            sets = [dict(zip(("gold", "predictions"), make(seed, EXAMPLES), strict=True)) for seed in SEEDS]
            with tempfile.TemporaryDirectory() as scratch:
                files = [write(Path(scratch) / str(number), **case) for number, case in enumerate(sets)]
                figures = official_figures(kind, folder / clone, files)
            content[kind] = [{**case, "figures": official} for case, official in zip(sets, figures, strict=True)]
    FIXTURE.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
