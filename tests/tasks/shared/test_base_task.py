"""Checkpoints load only with the dictionary that they were trained with, and examples are known by their documents."""

from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.tasks import TASK_REGISTRY

from fairseq_poolingformer.char_lm.task import byte_dictionary, load_text
from fairseq_poolingformer.checkpoint_reader import checkpoints as checkpoint_files
from fairseq_poolingformer.patches import CheckpointError
from fairseq_poolingformer.patches.long_jobs import changed_options
from fairseq_poolingformer.weights.files import write_checkpoint
from tests.models import tiny_bart
from tests.tasks.folders import write
from tests.tasks.masked_lm import mlm_folder
from tests.tasks.masked_lm.test_task import build as build_mlm
from tests.tasks.question_answering import folders
from tests.tasks.question_answering.task import build_task

EXAMPLES = [([5, 6, 7], [5]), ([6, 7], [8])]


def swap(path):
    """Exchange two words of a dictionary."""
    lines = path.read_text().splitlines(keepends=True)
    lines[3], lines[4] = lines[4], lines[3]
    path.write_text("".join(lines))


@pytest.fixture
def summaries(tmp_path):
    return tiny_bart.write_data_folder(tmp_path / "pairs", splits={"train": EXAMPLES})


@pytest.fixture
def documents(tmp_path):
    texts = mlm_folder.random_texts(12, 60)
    mlm_folder.write_folder(tmp_path / "documents", {"train": texts})
    (tmp_path / "documents" / "train.id.txt").write_text("".join(f"article {n}\n" for n in range(len(texts))))
    return tmp_path / "documents"


def test_a_summarization_checkpoint_needs_its_dictionaries(summaries, tmp_path):
    args = tiny_bart.parse(summaries, *tiny_bart.SIZES, "--pooled-layers", "2")
    task, model = tiny_bart.build(summaries, *tiny_bart.SIZES, "--pooled-layers", "2")
    path = str(tmp_path / "x.pt")
    write_checkpoint(path, vars(args), model.state_dict())
    torch.save({**checkpoint_files.load(path), "task_state": task.state_dict()}, path)
    checkpoint_utils.load_model_ensemble_and_task([path])
    swap(summaries / "dict.source.txt")
    swap(summaries / "dict.target.txt")
    with pytest.raises(CheckpointError, match=r"x\.pt cannot be used: it was trained with another dict\.source\.txt"):
        checkpoint_utils.load_model_ensemble_and_task([path])
    other = SimpleNamespace(task=tiny_bart.build(summaries, *tiny_bart.SIZES)[0])
    for anew in (True, False):
        with pytest.raises(CheckpointError, match=r"^x\.pt: it was trained with another dict\.source\.txt"):
            changed_options.check("x.pt", {"task_state": task.state_dict()}, other, anew)


def options_of(name):
    criterion, arch = OTHERS.get(name, ("document_task", "poolingformer_roberta_tiny"))
    return ["--task", name, "--user-dir", tiny_bart.USER_DIR, "--criterion", criterion, "--arch", arch]


OTHERS = {
    "char_lm": ("char_lm", "longformer_lm_small"),
    "long_masked_lm": ("long_masked_lm", "poolingformer_roberta_tiny"),
    "long_summarization": ("linear_cross_entropy", "poolingformer_bart_tiny"),
    "question_answering": ("question_answering", "poolingformer_roberta_tiny"),
}
OWN_TASKS = sorted(name for name, task in TASK_REGISTRY.items() if task.__module__.startswith("fairseq_poolingformer."))


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


def setup(name, folder):
    return tasks.setup_task(
        options.parse_args_and_arch(options.get_training_parser(), [str(folder), *options_of(name)])
    )


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


def test_the_same_words_in_another_folder_are_the_same_dictionary(summaries, tmp_path):
    other = tiny_bart.write_data_folder(tmp_path / "other")
    state = tiny_bart.build(summaries)[0].state_dict()
    tiny_bart.build(other)[0].load_state_dict(state)
    tiny_bart.build(other)[0].load_state_dict({})  # a checkpoint from before there were digests


def test_tasks_that_add_symbols_share_a_dictionary(tmp_path, documents):
    """One adds <mask> before the dictionary is remembered and one after it."""
    pretrained = build_mlm(documents)[1].state_dict()
    folders.write_folder(tmp_path / "questions", {"train": [folders.Example([5], [6, 7])]})
    (tmp_path / "questions" / "dict.txt").write_bytes((documents / "dict.txt").read_bytes())
    build_task(tmp_path / "questions")[1].load_state_dict(pretrained)
    swap(tmp_path / "questions" / "dict.txt")
    with pytest.raises(ValueError, match=r"another dict\.txt"):
        build_task(tmp_path / "questions")[1].load_state_dict(pretrained)


def test_summaries_are_named_by_id_or_number(summaries):
    task, _ = tiny_bart.build(summaries, *tiny_bart.SIZES)
    task.load_dataset("train")
    assert task.example_names("train", [1, 0]) == ["1", "0"]
    (summaries / "train.id.txt").write_text("first\nsecond\n")
    assert task.example_names("train", [1, 0]) == ["second", "first"]


@pytest.mark.parametrize("cut", ["separate", "pack"])
def test_blocks_are_named_by_their_documents(documents, cut):
    _, task = build_mlm(documents, "--document-blocks", cut)
    task.load_dataset("train")
    dataset = task.dataset("train")
    names = task.example_names("train", range(len(dataset)))
    bounds = dataset.documents.bounds
    for name, first, end in zip(names, dataset.blocks.first_token, dataset.blocks.end_token, strict=True):
        tokens = range(first, end)
        inside = [n for n in range(12) if any(bounds[n] <= token < bounds[n + 1] for token in tokens)]
        assert name == ", ".join(f"article {n}" for n in inside)
    assert any("," in name for name in names) == (cut == "pack")


def test_segments_are_named_by_their_examples(tmp_path):
    examples = [folders.Example([5], list(range(4, 40))), folders.Example([5], [6, 7])]
    folders.write_folder(tmp_path, {"train": examples})
    _, task = build_task(tmp_path)
    task.load_dataset("train")
    count = len(task.dataset("train"))
    names = task.example_names("train", range(count))
    assert (names[0], names[-1]) == ("100", "101")
    assert set(names) == {"100", "101"}
