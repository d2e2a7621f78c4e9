import json
from types import SimpleNamespace

import pytest
from fairseq.data import Dictionary
from fairseq.tasks import TASK_REGISTRY

from fairseq_poolingformer.char_lm.task import byte_dictionary, load_text
from fairseq_poolingformer.command import UsageError
from fairseq_poolingformer.tasks.shared.base_task import CheckedTask
from fairseq_poolingformer.text.dictionary import symbols_digest
from tests import lab
from tests.models import tiny_bart
from tests.tasks.folders import random_wikihop, write, write_wikihop
from tests.tasks.masked_lm import mlm_folder


def swap(path):
    """Exchange two words of a dictionary."""
    lines = path.read_text().splitlines(keepends=True)
    lines[3], lines[4] = lines[4], lines[3]
    path.write_text("".join(lines))


OTHERS = {
    "char_lm": ("char_lm", "longformer_lm_small"),
    "long_masked_lm": ("long_masked_lm", "poolingformer_roberta_tiny"),
    "long_summarization": ("linear_cross_entropy", "poolingformer_bart_tiny"),
    "question_answering": ("question_answering", "poolingformer_roberta_tiny"),
}
OWN_TASKS = sorted(name for name, task in TASK_REGISTRY.items() if task.__module__.startswith("fairseq_poolingformer."))


def setup(name, folder):
    criterion, arch = OTHERS.get(name, ("document_task", "poolingformer_roberta_tiny"))
    return lab.task(folder, name, arch, criterion=criterion)[1]


def write_folder(name, folder):
    """A data folder of a task's, without examples."""
    if name == "long_masked_lm":
        mlm_folder.write_folder(folder, {})
    elif name == "long_summarization":
        tiny_bart.write_data_folder(folder)
    else:
        write(folder, name, "train", {}, {}, labels=["no", "yes"])
    if name == "char_lm":
        byte_dictionary().save(str(folder / "dict.txt"))
        for suffix in ("bin", "idx"):
            (folder / f"train.{suffix}").touch()


def test_every_example_is_in_a_batch(tmp_path):
    """fairseq drops the last batch where its size is no multiple of 8, the default."""
    mlm_folder.write_folder(tmp_path, {"train": mlm_folder.random_texts(13, 30)})
    task = setup("long_masked_lm", tmp_path)
    task.load_dataset("train")
    dataset = task.dataset("train")
    batches = task.get_batch_iterator(dataset, max_sentences=8, required_batch_size_multiple=8).next_epoch_itr()
    assert sorted(number for batch in batches for number in batch["id"].tolist()) == list(range(len(dataset)))


def test_training_alone_refuses_examples_that_would_be_left_out(tmp_path):
    texts = mlm_folder.random_texts(3, 30)
    mlm_folder.write_folder(tmp_path, {"train": texts, "valid": texts})
    task = setup("long_masked_lm", tmp_path)
    for split in ("train", "valid"):
        task.load_dataset(split)
        dataset = task.dataset(split)
        indices, longest = dataset.ordered_indices(), int(max(dataset.sizes))
        assert task.filter_indices_by_size(indices, dataset, longest).tolist() == indices.tolist()
    assert len(task.filter_indices_by_size(indices, dataset, 1, ignore_invalid_inputs=True)) == 0
    with pytest.raises(UsageError, match=f"{len(indices)} of {len(indices)} examples of train have more than 1 tokens"):
        task.filter_indices_by_size(indices, task.dataset("train"), 1, ignore_invalid_inputs=True)
    assert len(dataset) % 8


@pytest.mark.parametrize("name", OWN_TASKS)
def test_no_task_takes_a_permuted_dictionary(name, tmp_path):
    write_folder(name, tmp_path)
    state = setup(name, tmp_path).state_dict()
    setup(name, tmp_path).load_state_dict(state)
    for path in tmp_path.glob("dict*.txt"):
        swap(path)
    # of bytes there is only one dictionary, so that it is compared with that of the data
    check = setup(name, tmp_path).load_state_dict if name != "char_lm" else lambda _: load_text(tmp_path, "train")
    with pytest.raises(ValueError, match=r"another dict\.|not the dictionary of bytes"):
        check(state)


@pytest.mark.parametrize("name", OWN_TASKS)
def test_no_task_trains_on_a_second_folder_with_another_dictionary_or_other_labels(name, tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        write_folder(name, folder)
    both = ":".join(map(str, folders))
    setup(name, both)
    corpus = folders[1] / "corpus.json"
    if corpus.is_file() and "labels" in (content := json.loads(corpus.read_text())):
        corpus.write_text(json.dumps({**content, "labels": content["labels"][::-1]}))
        with pytest.raises(UsageError, match="b has other labels than"):
            setup(name, both)
        corpus.write_text(json.dumps(content))
    path = next(folders[1].glob("dict*.txt"))
    swap(path)
    with pytest.raises(UsageError, match=rf"{path.name} is missing or another dictionary than .*{path.name}"):
        setup(name, both)
    path.unlink()
    with pytest.raises(UsageError, match=rf"{path.name} is missing or another dictionary"):
        setup(name, both)


def test_the_digest_is_that_of_the_file_whatever_the_task_adds_and_a_loss_must_fit(tmp_path, monkeypatch):
    write_wikihop(tmp_path, {"train": random_wikihop(1)})
    task = setup("wikihop", tmp_path)
    symbols = Dictionary.load(str(tmp_path / "dict.txt")).symbols
    assert len(task.dictionary) > len(symbols), "the task adds marks"
    assert task.dictionary_digests == {"dict.txt": symbols_digest(symbols)}
    monkeypatch.setattr(CheckedTask.__mro__[1], "build_criterion", lambda *arguments, **named: None)
    for criterion in (None, "cross_entropy"):
        with pytest.raises(ValueError, match=f"needs --criterion document_task, and it is {criterion}"):
            task.build_criterion(criterion and SimpleNamespace(_name=criterion))
