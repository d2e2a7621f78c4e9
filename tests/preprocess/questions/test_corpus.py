"""The report of a question answering corpus, by hand."""

from fairseq_poolingformer.tasks.question_answering.examples import QuestionAnsweringSplit
from fairseq_poolingformer.text.data_folder import DataFolder
from preprocess.pipeline.report import Made
from preprocess.questions.corpus import table
from tests.tasks.question_answering.folders import Example, write_folder

SHORT, LONG = 1, 4


def test_the_table_by_hand(tmp_path):
    """Segments of 80 hold 74 document tokens beside a question of two, and one begins every ten."""
    examples = [
        Example([5, 6], [7] * 100, [(0, 10)], [(LONG, 0, -1, -1)]),  # four segments
        Example([5, 6], [7] * 94, [(2, 90)], [(SHORT, 0, 3, 84)]),  # three segments, none with the whole answer
        Example([5, 6], [7] * 6, [(0, 6)], [(0, -1, -1, -1)]),
    ]
    write_folder(tmp_path, {"valid": examples}, kind="tydiqa")
    (tmp_path / "valid.id.txt").write_text("1\tthai\n2\tfinnish\n3\tthai\n", encoding="utf-8")
    (tmp_path / "valid.notes.txt").write_text("odd; strange\n\nodd\n", encoding="utf-8")
    folder = DataFolder(tmp_path, QuestionAnsweringSplit.layout)
    lines = table(Made(folder, "tydiqa", ["valid"], [80, 200], {"valid": 9}), doc_stride=10).split("\n")
    rows = [" ".join(line.replace(" %", "").split()) for line in lines[1:4]]
    assert rows == [
        "valid 3 2 94 99 8 1 3 0 33.3 33.3 0.0 0.0 33.3 9",
        "finnish 1 2 94 94 3 1 1 0 0.0 100.0 0.0 0.0 0.0",
        "thai 2 2 53 91 5 0 2 0 50.0 0.0 0.0 0.0 50.0",
    ]
    assert lines[4:] == [
        "valid: 2 × odd",
        "valid: 1 × strange",
        "valid: 1 × short answer of more than 30 tokens",
    ]
