"""The command around the converter: the flags that it prints train, what it converts works with every other command."""

import re
import shlex
import shutil

import pytest
import torch
from fairseq import options
from fairseq.distributed import utils as distributed_utils
from fairseq_cli import generate, train
from safetensors.torch import load_file

from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.cli import average_checkpoints, convert, eval_lm, predict, summarize
from fairseq_poolingformer.models import PoolingformerBART, PoolingformerRoberta
from tests.models import tiny_bart, tiny_huggingface
from tests.patches.helpers import parse
from tests.tasks.question_answering import folders
from tests.weights.test_sentencepiece_model import train as train_sentencepiece

ROWS = len(tiny_huggingface.vocabulary())
TEXT = "the thing in there is that thing, and ever the other thing there, éé"
CONVERTED = {  # name -> Hugging Face's model_type, changes of its configuration, options of the command
    "bart of bart-large-cnn's shape": ("bart", {"vocab_size": ROWS - 1}, []),
    "bart with scaled embeddings": ("bart", {"scale_embedding": True}, []),
    "bart as a Poolingformer": ("bart", {}, ["--arch", "poolingformer_bart_base"]),
    "led": ("led", {}, []),
    "roberta": ("roberta", {}, []),
    "xlm-roberta": ("xlm-roberta", {}, []),
    "longformer": ("longformer", {"max_position_embeddings": 2002}, []),
    "deberta": ("deberta", {"max_relative_positions": 130}, []),
    "deberta of few positions": ("deberta", {}, []),
}
SUMMARIZERS = [name for name in CONVERTED if name.startswith(("bart", "led"))]


def run(command, *arguments) -> int:
    return command.main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """The converted folder of a name in CONVERTED, and what the command printed."""
    made = {}

    def make(name, capsys):
        if name not in made:
            model_type, changes, arguments = CONVERTED[name]
            path = tmp_path_factory.mktemp("converted")
            if model_type == "xlm-roberta":
                model = train_sentencepiece(path / "sentencepiece")
                rows = len((path / "sentencepiece.vocab").read_text(encoding="utf-8").splitlines()) + 2
                changes = {"vocab_size": rows}
                tiny_huggingface.model(model_type, **changes).save_pretrained(path / "hf")
                shutil.copy(model, path / "hf" / "sentencepiece.bpe.model")
            else:
                tiny_huggingface.folder(path / "hf", model_type, **changes)
            capsys.readouterr()
            assert run(convert, "to-fairseq", path / "hf", path / "fairseq", *arguments) == 0
            made[name] = path / "fairseq", capsys.readouterr().out
        return made[name]

    return make


def data_folder(path, model, task):
    """A data folder of a few documents, with the dictionary and the tokenizer of a converted model."""
    generator = torch.Generator().manual_seed(3)
    documents = [torch.randint(4, 200, (length,), generator=generator).tolist() for length in (90, 31, 60)]
    if task == "long_summarization":
        tiny_bart.write_data_folder(path, splits={"train": [(text, text[:7]) for text in documents]})
    elif task == "question_answering":
        examples = [folders.Example(text[:4], text[4:34], [(0, 30)], [(1, 0, 3, 5)]) for text in documents]
        folders.write_folder(path, dict.fromkeys(("train", "valid"), examples))
    else:
        tiny_bart.write_data_folder(path, splits={"train": [(text, text[:7]) for text in documents]})
        for end in ("bin", "idx"):
            (path / f"train.source-target.source.{end}").rename(path / f"train.{end}")
    for file in model.glob("dict*.txt"):
        shutil.copy(file, path / file.name)
    shutil.copytree(model / "tokenizer", path / "tokenizer")
    return path


def printed_flags(printed, folder):
    """The model's flags in the training that the converter has printed, as words."""
    (line,) = [line for line in printed.splitlines() if line.startswith("fairseq-train data ")]
    words = shlex.split(line)
    end = words.index("--finetune-from-model") + 1
    return [*words[words.index("--arch") : end], folder / words[end]]


@pytest.mark.parametrize("name", [name for name in CONVERTED if "as a" not in name and "shape" not in name])
def test_the_printed_flags_train(tmp_path, capsys, converted, name):
    folder, printed = converted(name, capsys)
    tasks = ["long_summarization"] if name in SUMMARIZERS else ["long_masked_lm", "question_answering"]
    assert f"in {folder}, as its README.md says" in printed
    assert f"--task {tasks[0]} " in printed
    assert all((folder / word).exists() for word in re.findall(r"tokenizer\S*", printed.partition("README.md says")[2]))
    for task in tasks:
        data, run_folder = data_folder(tmp_path / f"{task}-data", folder, task), tmp_path / task
        words = [
            data,
            "--task",
            task,
            *printed_flags(printed, folder),
            "--batch-size",
            "2",
            "--max-update",
            "1",
            "--fp16",
        ]
        words += ["--criterion", "linear_cross_entropy" if name in SUMMARIZERS else task, "--optimizer", "fused_adamw"]
        words += ["--lr", "1e-5", "--checkpoint-activations", "--disable-validation", "--cpu", "--num-workers", "0"]
        words += ["--save-dir", run_folder]
        distributed_utils.call_main(parse(options.get_training_parser(), words), train.main)
        trained = load(run_folder / "checkpoint_last.pt")
        assert trained["optimizer_history"][-1]["num_updates"] == 1
        start = load(folder / "model.pt")["model"]
        weight = next(n for n in start if n.endswith("layers.2.fc1.weight"))
        torch.testing.assert_close(trained["model"][weight].float(), start[weight], rtol=0, atol=2e-3)
        table = next(n for n in start if n.endswith("encoder.embed_tokens.weight"))
        assert len(trained["model"][table]) in (len(start[table]), len(start[table]) - 1)


def summarize_text(folder, tmp_path):
    (tmp_path / "text").write_text(TEXT, encoding="utf-8")
    arguments = ["--checkpoint", folder / "model.pt", "--max-len-b", 5, "--beam", 2, "--device", "cpu"]
    return run(summarize, tmp_path / "text", *arguments)


def generate_summaries(folder, tmp_path):
    data = data_folder(tmp_path / "data", folder, "long_summarization")
    words = [data, "--task", "long_summarization", "--path", folder / "model.pt", "--gen-subset", "train"]
    words += ["--cpu", "--num-workers", 0, "--max-len-b", 6, "--beam", 2, "--results-path", tmp_path / "out"]
    generate.main(parse(options.get_generation_parser(), words))
    lines = (tmp_path / "out" / "generate-train.txt").read_text(encoding="utf-8").splitlines()
    return 0 if sum(line.startswith("H-") for line in lines) == 3 else 1


def use_hub(folder, tmp_path):
    if (folder / "dict.source.txt").is_file():
        hub = PoolingformerBART.from_pretrained(str(folder)).eval()
        assert len(hub.summarize([TEXT, "the"], max_len_b=5, beam=2, batch_size=2)) == 2
    else:
        hub = PoolingformerRoberta.from_pretrained(str(folder)).eval()
        assert hub.extract_features(hub.encode("the thing")).isfinite().all()
    return 0


def convert_back(folder, tmp_path):
    return run(convert, "to-huggingface", folder / "model.pt", tmp_path / "back")


def average(folder, tmp_path):
    arguments = ["--inputs", folder / "model.pt", folder / "model.pt", "--output", tmp_path / "mean.pt"]
    assert run(average_checkpoints, *arguments) == 0
    before, after = load(folder / "model.pt")["model"], load(tmp_path / "mean.pt")["model"]
    assert all(torch.equal(before[name], after[name]) for name in before)
    return 0


def predict_answers(folder, tmp_path):
    data = data_folder(tmp_path / "data", folder, "question_answering")
    return run(predict, data, "--path", folder / "model.pt", "--output", tmp_path / "out.json", "--device", "cpu")


def evaluate(folder, tmp_path):
    return run(eval_lm, tmp_path, "--path", folder / "model.pt", "--device", "cpu")


COMMANDS = {  # with which models a command works; the others are refused in one sentence that names their file
    summarize_text: SUMMARIZERS,
    generate_summaries: SUMMARIZERS,
    use_hub: list(CONVERTED),
    convert_back: [name for name in CONVERTED if "as a" not in name],  # which has no second level before training
    average: list(CONVERTED),
    predict_answers: [],
    evaluate: [],
}
NOT_FOR = {generate_summaries: [name for name in CONVERTED if name not in SUMMARIZERS]}  # fairseq's own command


@pytest.mark.parametrize("name", [name for name in CONVERTED if "few" not in name and "scaled" not in name])
def test_every_command_takes_or_refuses_a_converted_model(tmp_path, capsys, converted, name):
    folder, _ = converted(name, capsys)
    for command, models in COMMANDS.items():
        if name in NOT_FOR.get(command, []):
            continue
        place = tmp_path / command.__name__
        place.mkdir()
        status = command(folder, place)
        printed = capsys.readouterr()
        if name in models:
            assert status == 0, (command, printed.err)
        else:
            assert status == 1, command
            lines = printed.err.strip().splitlines()
            assert len(lines) == 1, (command, lines)
            assert str(folder) in lines[0] or "train it first" in lines[0]


def test_the_tokenizer_of_the_training_data_is_found(tmp_path, capsys, converted):
    """Training records its data folder; the checkpoint of a run has no tokenizer beside it."""
    folder, _ = converted("bart of bart-large-cnn's shape", capsys)
    data = data_folder(tmp_path / "data", folder, "long_summarization")
    state = load(folder / "model.pt")
    model = state["args"]
    (tmp_path / "run").mkdir()
    path = tmp_path / "run" / "checkpoint_best.pt"
    for recorded in ({"args": None, "cfg": {"model": model, "task": {"data": f"{data}:{tmp_path}"}}}, {"args": model}):
        if recorded["args"] is not None:
            recorded["args"].data = str(data)
        torch.save({**state, **recorded}, path)
        shutil.rmtree(tmp_path / "back", ignore_errors=True)
        assert run(convert, "to-huggingface", path, tmp_path / "back") == 0
        assert load_file(tmp_path / "back" / "model.safetensors")
    shutil.rmtree(data / "tokenizer")
    assert run(convert, "to-huggingface", path, tmp_path / "other") == 1
    error = capsys.readouterr().err
    assert f"no tokenizer/ in {tmp_path / 'run'} or {data}" in error
    assert "--tokenizer" in error
    assert run(convert, "to-huggingface", path, tmp_path / "other", "--tokenizer", tmp_path / "no") == 1
    assert f"--tokenizer {tmp_path / 'no'} is no folder" in capsys.readouterr().err
    model.arch = "longformer_lm_tiny"  # which no tokenizer would help
    torch.save({**state, "args": model}, path)
    assert run(convert, "to-huggingface", path, tmp_path / "other") == 1
    assert "architecture is longformer_lm_tiny; can convert those of BART" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("direction", "source", "messages"),
    [
        ("to-huggingface", "empty", ["is a folder without checkpoints"]),
        ("to-huggingface", "run", ["name a checkpoint in it, checkpoint_best.pt or checkpoint_last.pt"]),
        ("to-fairseq", "facebook/bart-large", ["facebook/bart-large is no folder",
                                               "hf download facebook/bart-large --local-dir bart-large"]),
    ],
)  # fmt: skip
def test_sources_of_another_kind_are_refused(tmp_path, capsys, monkeypatch, direction, source, messages):
    monkeypatch.chdir(tmp_path)
    for folder in ("empty", "run"):
        (tmp_path / folder).mkdir()
    for name in ("checkpoint_last.pt", "checkpoint_best.pt"):
        (tmp_path / "run" / name).touch()
    assert run(convert, direction, source, tmp_path / "out") == 1
    error = capsys.readouterr().err
    assert all(message in error for message in messages)
