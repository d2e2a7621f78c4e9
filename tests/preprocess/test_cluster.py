import itertools
import json

import pytest

from preprocess import arxiv_pubmed
from preprocess.pipeline import parts
from preprocess.pipeline.run import Work
from preprocess.pipeline.vocabulary import choose_tokenizer
from tests.preprocess.conftest import contents


@pytest.fixture
def words(tmp_path, gpt2_folder, monkeypatch):
    """The options of a corpus of five files."""
    monkeypatch.setattr(parts, "PART_BYTES", 300)
    for name, count in (("a", 7), ("b", 1), ("c", 4), ("v", 3), ("t", 2)):
        rows = [{"id": f"{name}{n}", "document": "the theory of it " * 9, "summary": f"{n}"} for n in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = {"train": "abc", "valid": "v", "test": "t"}
    named = [[f"--{split}", *(tmp_path / f"{name}.jsonl" for name in names)] for split, names in files.items()]
    return [*map(str, itertools.chain(*named)), "--gpt2-bpe", str(gpt2_folder), "--limit", "10"]


def run(words, folder):
    return arxiv_pubmed.main([*words, "--output-folder", str(folder), "--workers", "1"])


def test_files_of_several_machines_make_the_bytes_of_one(words, tmp_path, monkeypatch):
    assert run(words, tmp_path / "one") == 0
    args = arxiv_pubmed.make_parser().parse_args([*words, "--output-folder", str(tmp_path / "many"), "--workers", "1"])
    corpus = arxiv_pubmed.make_corpus(args)
    work = Work(corpus, choose_tokenizer(args, corpus), args)
    fingerprint = work.open()
    assert work.files() == [("train", 0), ("train", 1), ("train", 2), ("valid", 0), ("test", 0)]
    for split, file in (work.files()[1], work.files()[4], work.files()[0]):
        work.encode_file(split, file, fingerprint)
    assert run(words, tmp_path / "many") == 0
    assert contents(tmp_path / "many") == contents(tmp_path / "one")


def test_datatrove_runs_it_and_a_killed_machine_goes_on(words, tmp_path):
    executor = pytest.importorskip("datatrove.executor")
    from preprocess.cluster import EncodeFiles

    assert run(words, tmp_path / "one") == 0
    step = EncodeFiles("arxiv_pubmed", [*words, "--output-folder", tmp_path / "many", "--workers", 1])
    assert step.count == 5
    logs = {"logging_dir": str(tmp_path / "logs"), "tasks": 3, "workers": 2, "skip_completed": True}
    executor.LocalPipelineExecutor([step], **logs, local_tasks=2).run()
    left = sorted((tmp_path / "many" / ".parts").glob("train-*.json"))
    left[-1].unlink()  # as a kill leaves a part: its arrays without the file that says that they are whole
    executor.LocalPipelineExecutor([step], **logs).run()
    assert len(list((tmp_path / "many" / ".parts").glob("*.finished"))) == 5
    assert run(words, tmp_path / "many") == 0
    assert contents(tmp_path / "many") == contents(tmp_path / "one")
