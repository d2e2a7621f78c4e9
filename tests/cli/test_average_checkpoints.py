"""The averaging of checkpoints."""

import re
from argparse import Namespace

import pytest
import torch

from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.cli.average_checkpoints import average_checkpoints, main
from tests import lab
from tests.patches.helpers import generate, train


def write(path, **tensors):
    torch.save({"model": tensors, "cfg": {"from": path.name}}, path)
    return path


def test_mean_of_each_parameter(tmp_path):
    first = write(tmp_path / "a.pt", w=torch.tensor([1.0, 2.0]), n=torch.tensor(3))
    second = write(tmp_path / "b.pt", w=torch.tensor([2.0, 5.0]), n=torch.tensor(4))
    state = average_checkpoints([first, second])
    assert state["model"]["w"].tolist() == [1.5, 3.5]
    assert state["model"]["n"].item() == 3  # an integer has no mean: the first checkpoint's
    assert state["cfg"] == {"from": "a.pt"}


@pytest.mark.parametrize(
    ("dtype", "result"),
    [
        *((dtype, torch.float32) for dtype in (torch.float16, torch.bfloat16, torch.float32)),
        *((dtype, dtype) for dtype in (torch.int64, torch.bool)),
    ],
)
def test_dtypes(tmp_path, dtype, result):
    paths = [write(tmp_path / f"{i}.pt", w=torch.ones(3, dtype=dtype)) for i in range(3)]
    mean = average_checkpoints(paths)["model"]["w"]
    assert mean.dtype == result
    assert (mean == 1).all()


def test_sums_do_not_overflow_or_lose(tmp_path):
    values = [6e4, 6e4, 6e4]  # a float16 sum would be infinite
    paths = [write(tmp_path / f"h{i}.pt", w=torch.tensor(v, dtype=torch.float16)) for i, v in enumerate(values)]
    assert average_checkpoints(paths)["model"]["w"].item() == torch.tensor(6e4, dtype=torch.float16).item()
    values = [2.0**24, 1.0, 1.0, 2.0]  # a float32 sum would lose the ones
    paths = [write(tmp_path / f"f{i}.pt", w=torch.tensor(v)) for i, v in enumerate(values)]
    assert average_checkpoints(paths)["model"]["w"].item() == 2.0**22 + 1


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_has_no_mean(tmp_path, capsys, value):
    paths = [write(tmp_path / f"{number}.pt", w=torch.tensor([1.0, number])) for number in (1.0, value)]
    for inputs in (paths, paths[::-1]):
        assert main(["--inputs", *map(str, inputs), "--output", str(tmp_path / "mean.pt")]) == 1
        assert "1 of 2 numbers of w are NaN or infinite: the training had failed" in capsys.readouterr().err
    large = [write(tmp_path / f"{n}.pt", w=torch.full((9,), 3e38), x_float_tensor=torch.tensor(value)) for n in (1, 2)]
    assert average_checkpoints(large)["model"]["w"].isfinite().all()  # only its sum is not


WINDOWS = {"cfg": {"model": {"window_size": "4", "pooled_layers": "0-1"}}}
OTHERS = {
    "--window-size 4 (8)": (WINDOWS, {"args": Namespace(window_size="8", pooled_layers="0,1")}),
    "--shared-span False (True)": ({"cfg": {"model": {"shared_span": False}}}, {"args": Namespace(shared_span=True)}),
    "dictionaries": (
        {"task_state": {"dictionaries": {"dict.txt": "12"}}},
        {"task_state": {"dictionaries": {"dict.txt": "34"}}},
    ),
    **{name: ({"task_state": {name: "a"}}, {"task_state": {name: "b"}}) for name in ("labels", "problem_type")},
}


@pytest.mark.parametrize("words", OTHERS)
def test_parameters_that_mean_something_else_have_no_mean(tmp_path, words):
    for path, more in zip((tmp_path / "b.pt", tmp_path / "a.pt"), OTHERS[words], strict=True):
        torch.save({"model": {"w": torch.ones(1)}, **more}, path)
    with pytest.raises(ValueError, match=re.escape(f"b.pt has other {words} than {tmp_path}/a.pt")):
        average_checkpoints([tmp_path / "a.pt", tmp_path / "b.pt"])


def test_one_way_to_write_a_setting_is_as_good_as_another(tmp_path):
    for name, layers in (("a.pt", "0-1"), ("b.pt", "0,1")):
        state = {"model": {"w": torch.ones(1)}, "cfg": {"model": {"window_size": "4", "pooled_layers": layers}}}
        torch.save(state, tmp_path / name)
    assert average_checkpoints([tmp_path / "a.pt", tmp_path / "b.pt"])["model"]["w"].item() == 1


def test_dictionary_and_tokenizer_lie_beside_the_mean(tmp_path):
    lab.copy(lab.texts() / "tokenizer", tmp_path / "run" / "tokenizer")
    lab.copy(lab.texts() / "dict.txt", tmp_path / "run")
    path = write(tmp_path / "run" / "a.pt", w=torch.ones(1))
    assert main(["--inputs", str(path), "--output", str(tmp_path / "mean" / "mean.pt")]) == 0
    for name in ("dict.txt", "tokenizer/config.json"):
        assert (tmp_path / "mean" / name).read_bytes() == (lab.texts() / name).read_bytes()


def test_tensors_that_all_checkpoints_share_stay_shared(tmp_path):
    for name in ("a.pt", "b.pt"):
        tied, ones = torch.rand(2, 3), torch.ones(2)
        other = ones if name == "a.pt" else torch.zeros(2)
        write(tmp_path / name, encoder=tied, decoder=tied, alone=torch.rand(2, 3), x=ones, y=other)
    main(["--inputs", str(tmp_path / "a.pt"), str(tmp_path / "b.pt"), "--output", str(tmp_path / "mean.pt")])
    model = load(tmp_path / "mean.pt")["model"]
    assert model["encoder"].data_ptr() == model["decoder"].data_ptr() != model["alone"].data_ptr()
    assert (model["x"].tolist(), model["y"].tolist()) == ([1, 1], [0.5, 0.5])


@pytest.fixture
def folder(tmp_path):
    for epoch in (1, 2, 3, 10):
        write(tmp_path / f"checkpoint{epoch}.pt", w=torch.tensor(float(epoch)))
        write(tmp_path / f"checkpoint_{epoch}_{100 * epoch}.pt", w=torch.tensor(100.0 * epoch))
    write(tmp_path / "checkpoint_last.pt", w=torch.tensor(-1.0))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "mean", "newest"),
    [
        (["--num-epoch-checkpoints", "2"], 6.5, "checkpoint10.pt"),
        (["--num-epoch-checkpoints", "2", "--checkpoint-upper-bound", "3"], 2.5, "checkpoint3.pt"),
        (["--num-update-checkpoints", "3"], 500, "checkpoint_10_1000.pt"),
        (["--num-update-checkpoints", "2", "--checkpoint-upper-bound", "999"], 250, "checkpoint_3_300.pt"),
    ],
)
def test_the_last_of_a_folder(folder, arguments, mean, newest):
    assert main(["--inputs", str(folder), *arguments, "--output", str(folder / "mean.pt")]) == 0
    state = load(folder / "mean.pt")
    assert (state["model"]["w"].item(), state["cfg"]) == (mean, {"from": newest})


def test_an_average_replaces_no_checkpoint_that_it_averages(folder, capsys):
    last = ["--inputs", str(folder), "--num-epoch-checkpoints", "1", "--output"]
    path, before = folder / "checkpoint10.pt", (folder / "checkpoint10.pt").read_bytes()
    with pytest.raises(SystemExit):
        main([*last, str(path)])
    assert "is an input of this command" in capsys.readouterr().err
    assert path.read_bytes() == before
    assert main([*last, str(folder / "mean.pt")]) == main([*last, str(folder / "mean.pt")]) == 0
    assert capsys.readouterr().err == f"replaces {folder}/mean.pt\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{}", "--num-epoch-checkpoints", "5"], "has 4 named"),
        (["{}/checkpoint1.pt", "--num-epoch-checkpoints", "1"], "is no folder"),
        (["{}/checkpoint1.pt", "{}/other.pt"], "other parameters than the first checkpoint: v, w"),
        (["{}/checkpoint1.pt", "{}/shape.pt"], "other parameters than the first checkpoint: w"),
        (["{}/bare.pt"], "no entry 'model'"),
    ],
)
def test_mistakes_are_named_and_leave_no_file(folder, capsys, arguments, message):
    write(folder / "other.pt", v=torch.tensor(1.0))
    write(folder / "shape.pt", w=torch.ones(2))
    torch.save({"v": torch.tensor(1.0)}, folder / "bare.pt")
    before = sorted(folder.iterdir())
    status = main(["--inputs", *(a.format(folder) for a in arguments), "--output", str(folder / "mean.pt")])
    assert status == 1
    assert message in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    "arguments", [["a.pt", "--checkpoint-upper-bound", "3"], ["a.pt", "b.pt", "--num-epoch-checkpoints", "2"]]
)
def test_options_that_do_not_go_together(arguments):
    with pytest.raises(SystemExit):
        main(["--inputs", *arguments, "--output", "mean.pt"])


def test_average_of_a_training_generates(corpus, tmp_path):
    train(corpus, tmp_path, "--max-epoch", 2)
    output = tmp_path / "mean.pt"
    assert main(["--inputs", str(tmp_path), "--num-epoch-checkpoints", "2", "--output", str(output)]) == 0
    assert len(generate(corpus, output, "--batch-size", 12)) == 12
    first, second, mean = (load(tmp_path / name)["model"] for name in ("checkpoint1.pt", "checkpoint2.pt", "mean.pt"))
    torch.testing.assert_close(
        mean["encoder.layers.0.fc1.weight"], (first[k := "encoder.layers.0.fc1.weight"] + second[k]) / 2
    )
