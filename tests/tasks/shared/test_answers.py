import json

import pytest

from fairseq_poolingformer.tasks.classification.scores import score as score_classes
from fairseq_poolingformer.tasks.shared.answers import merged
from fairseq_poolingformer.tasks.triviaqa.data import score as score_trivia

ASKED = {"QuestionId": "a", "Answer": {"NormalizedAliases": ["x"]}}


@pytest.mark.parametrize(
    ("score", "gold"),
    [(score_classes, {"id": "a", "label": "x"}), (score_trivia, {"Domain": "Wikipedia", "Data": [ASKED]})],
)
def test_gold_files_that_differ_are_refused(score, gold, tmp_path):
    text = json.dumps(gold)
    for name, content in (("1.json", text), ("2.json", text.replace('"x"', '"y"'))):
        (tmp_path / name).write_text(content)
    files = [tmp_path / "1.json", tmp_path / "2.json"]
    with pytest.raises(ValueError, match=r"2\.json: 'a' has another right answer than in another gold file; leave one"):
        score(files, files[0])


def test_gold_files_may_have_the_same_in_common(tmp_path):
    assert merged([tmp_path / "1", tmp_path / "2"], lambda path: {"a": 1, path.name: 2}) == {"a": 1, "1": 2, "2": 2}
