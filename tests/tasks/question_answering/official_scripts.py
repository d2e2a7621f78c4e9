"""Runs the official evaluation scripts, where somebody has them, on many sets of files in one process each.

``python official_scripts.py natural_questions FOLDER`` (or ``tydiqa``, ``triviaqa``, ``hotpotqa``) reads
``gold predictions`` paths, a pair a line, from standard input and prints the official figures as JSON, an object a
line. FOLDER is a clone of github.com/google-research-datasets/natural-questions (or tydiqa), mandarjoshi90/triviaqa or
hotpotqa/hotpot. The first two need absl-py and six. HotpotQA's reads JSON with ujson; Python's own does here.
"""

import ast
import contextlib
import importlib
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def official_figures(kind: str, folder: Path, files: Sequence[tuple[Path, Path]]) -> list[dict]:
    """Run the scripts of ``folder`` on each pair of gold data and predictions.

    Returns:
        For Natural Questions the metrics; for TyDi QA metrics by language, with the averages under ``average`` and
        the metrics of all languages together under ``all``. For the others what the script prints.
    """
    lines = "".join(f"{gold}\t{predictions}\n" for gold, predictions in files)
    command = [sys.executable, __file__, kind, str(folder)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def _natural_questions(script, gold: str, predictions: str) -> dict:
    annotations = script.util.read_annotation_from_one_split(gold)
    stats = script.score_answers(annotations, script.util.read_prediction_json(predictions))
    return {**script.get_metrics_with_answer_stats(*stats), **script.compute_final_f1(*stats)}


def _tydiqa(script, gold: str, predictions: str) -> dict:
    script.FLAGS.gold_path, script.FLAGS.predictions_path = gold, predictions
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        script.main(None)
    figures, language = {}, None
    for line in printed.getvalue().splitlines():
        if line.startswith("Passage & "):
            language = line.split(" & ")[1]
        elif line.startswith('{"passage'):
            figures[language] = json.loads(line)
        elif line.startswith('{"avg'):
            figures["average"] = json.loads(line)
    return {**figures, "all": script.get_metrics_as_dict(gold, predictions)}


def _triviaqa(script, gold: str, predictions: str) -> dict:
    data = script.utils.dataset_utils.read_triviaqa_data(gold)
    right = script.utils.dataset_utils.get_key_to_ground_truth(data)
    return script.evaluate_triviaqa(right, script.utils.utils.read_json(predictions), mute=True)


def _hotpotqa(script, gold: str, predictions: str) -> dict:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        script.eval(predictions, gold)
    return ast.literal_eval(printed.getvalue().splitlines()[-1])


_SCRIPTS = {
    "natural_questions": ("nq_eval", _natural_questions),
    "tydiqa": ("tydi_eval", _tydiqa),
    "triviaqa": ("evaluation.triviaqa_evaluation", _triviaqa),
    "hotpotqa": ("hotpot_evaluate_v1", _hotpotqa),
}


def main() -> None:
    """Print the figures of every pair that standard input names."""
    kind, folder = sys.argv[1:]
    sys.path[0] = folder
    name, figures = _SCRIPTS[kind]
    sys.modules.setdefault("ujson", json)
    script = importlib.import_module(name)
    if hasattr(script, "FLAGS"):
        script.FLAGS([name, *(["--noverbose"] if kind == "tydiqa" else [])])
    for line in sys.stdin.read().splitlines():
        print(json.dumps(figures(script, *line.split("\t"))))


if __name__ == "__main__":
    main()
