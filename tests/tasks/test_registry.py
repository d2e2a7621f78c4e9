import pytest

from fairseq_poolingformer.tasks import registry
from tests.forked_python import PYTHON
from tests.lab import ROOT, call


def test_every_task_has_its_parts():
    for task in registry.tasks().values():
        assert task.module("task") is not None
        assert all(callable(task.command(corpus).main) for corpus in task.corpora)
        scores = task.scores()
        assert (scores is not None) == bool(task.figures)
        assert scores is None or callable(getattr(scores, "score", None) or scores.run)


def test_a_data_folder_says_its_task(tmp_path):
    names = {'{"kind": "tydiqa"}': "question_answering", '{"corpus": "imdb"}': "document_classification"}
    for corpus in (*names, '{"kind": ["wikihop"], "corpus": ["imdb"]}', "[]", "{"):
        (tmp_path / "corpus.json").write_text(corpus)
        assert getattr(registry.of_folder(tmp_path), "name", None) == names.get(corpus)
    assert registry.of_kind("tydiqa").name == registry.of_kind("question_answering").name == "question_answering"


def test_a_name_is_given_once():
    with pytest.raises(ValueError, match=r"there is a task wikihop already, in .*tasks\.wikihop; give the one in mine"):
        registry.add(registry.Task("wikihop", "mine"))
    assert registry.add(registry.tasks()["wikihop"]) is registry.tasks()["wikihop"]


def installed(tmp_path, value, code, status=0):
    """The output of code where a package with this entry point is installed."""
    folder = tmp_path / "own-1.0.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[fairseq_poolingformer.tasks]\nkey_sentence = {value}\n")
    paths = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT / 'docs' / 'own_task')!r}]\n"
    program = tmp_path / "program.py"
    program.write_text(paths + code)
    return call([PYTHON, program], status)


@pytest.mark.full
def test_an_installed_package_adds_its_task(tmp_path):
    """Also one whose ``__init__`` runs while this project looks for the tasks of installed packages."""
    code = (
        "from fairseq_poolingformer.tasks import registry; print(registry.corpora()['key_lines'].name); "
        "import fairseq.tasks, fairseq_poolingformer; "
        "fairseq_poolingformer.register(); print('key_sentence' in fairseq.tasks.TASK_REGISTRY)"
    )
    late = "import fairseq.tasks, key_sentence; print('key_sentence' in fairseq.tasks.TASK_REGISTRY)"
    for program, printed in ((code, ["key_sentence", "True"]), (late, ["True"])):
        assert installed(tmp_path, "key_sentence:TASK", program).split()[-len(printed) :] == printed


def test_a_broken_package_is_named(tmp_path):
    code = "from fairseq_poolingformer.tasks import registry; registry.tasks()"
    message = "the task key_sentence of an installed package (no_such_package:TASK) cannot be imported"
    assert message in installed(tmp_path, "no_such_package:TASK", code, status=1)
