import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fairseq_poolingformer.cli.models import add_device_options
from fairseq_poolingformer.command import aligned, output_file, require_writable, run_command
from tests.lab import ROOT, run_code

PROGRAM = """
import argparse, os, sys
from fairseq_poolingformer.command import run_command

def run(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    os.write(writer, b"for a process that has died")

sys.exit(run_command(argparse.ArgumentParser(prog="program"), run, []))
"""


def test_a_broken_pipe_to_another_process_is_an_error():
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert result.returncode == 1
    assert "program: [Errno 32] Broken pipe" in result.stderr


@pytest.mark.parametrize("command", ["fairseq_poolingformer.cli.main", "preprocess"])
def test_a_reader_who_has_seen_enough_is_no_error(command):
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run([sys.executable, "-m", command, "--help"], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (result.returncode, result.stderr) == (0, "")


def program():
    parser = argparse.ArgumentParser(prog="program")
    parser.add_argument("--colour", choices=["red", "blue"])
    parser.add_subparsers().add_parser("sub").add_argument("--n", type=int)
    return parser


def fail(arguments):
    raise ValueError("wrong")


def test_an_error_is_a_sentence_or_on_demand_a_traceback(capsys, tmp_path):
    assert run_command(program(), fail, []) == 1
    assert capsys.readouterr().err == "program: wrong (--traceback shows where)\n"
    for words in (["--traceback"], ["--traceback", "sub"], ["sub", "--traceback"]):
        with pytest.raises(ValueError, match="wrong"):
            run_command(program(), fail, words)
    assert run_command(program(), lambda arguments: "traceback" in vars(arguments), []) == 0
    run_command(program(), lambda arguments: (tmp_path / "none.txt").read_text(), [])
    assert capsys.readouterr().err.startswith(f"program: {tmp_path}/none.txt: No such file or directory (--")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--colour", "reed"], "program: error: argument --colour: invalid choice: 'reed'; did you mean red?\n"),
        (["--color=red"], "program: error: unrecognized arguments: --color=red; did you mean --colour?\n"),
        (["--light"], "program: error: unrecognized arguments: --light\n"),
        (["sub", "--n", "x"], "program sub: error: argument --n: invalid int value: 'x'\n"),
    ],
)
def test_an_error_of_the_parser_is_a_sentence_too(words, error, capsys):
    with pytest.raises(SystemExit) as ended:
        run_command(program(), print, words)
    assert (ended.value.code, capsys.readouterr().err) == (2, error)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [("summarize", [__file__, "--checkpoint", "a.pt"]), ("convert", ["to-huggingface", __file__, "a"])],
)
def test_who_lacks_fairseq_is_told_what_to_install(command, arguments, tmp_path):
    code = f"from fairseq_poolingformer.cli.{command} import main; main({arguments})"
    error = run_code(code, tmp_path, hidden=["fairseq"])
    first, second = re.findall(r"pip install [^&(]*[^&( ]", error)
    assert error.count("\n") == 1
    by_hand = (ROOT / "docs" / "fairseq.md").read_text(encoding="utf-8")
    assert first in by_hand
    assert second in by_hand
    assert f'fairseq="{second.split()[-1]}"' in (ROOT / "run_scripts" / "install.sh").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("gpu", "'gpu' is no device; give cpu, cuda or cuda:1"),
        (f"cuda:{torch.cuda.device_count()}", f"torch finds {torch.cuda.device_count()} GPUs here"),
    ],
)
def test_a_device_that_is_not_there_is_refused_before_anything_is_loaded(device, message, capsys):
    parser = argparse.ArgumentParser()
    add_device_options(parser)
    assert parser.parse_args(["--device", "cpu"]).device == "cpu"
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(["--device", device])
    assert message in capsys.readouterr().err


def test_columns_are_aligned():
    rows = [["name", "count", "share"], ["a long name", "7", "12.5 %"], ["b", "1,234", ""]]
    assert aligned(rows).split("\n") == [
        "name         count   share",
        "a long name      7  12.5 %",
        "b            1,234",
    ]
    assert aligned(rows[:2], left=2).split("\n")[1] == "a long name  7      12.5 %"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none/x", "none: no such folder to write x into"),
        ("folder", "is a folder; name a file"),
        ("x" * 256, f"File name too long: '.*{'x' * 256}'"),
        ("closed/x", "Permission denied: '.*closed/x'"),
    ],
)
def test_what_cannot_be_written_is_told_before_the_work(name, message, tmp_path, monkeypatch):
    for folder in ("folder", "closed"):
        (tmp_path / folder).mkdir()
    (tmp_path / "closed").chmod(0o500)
    if name.startswith("closed") and os.access(tmp_path / "closed", os.W_OK):
        pytest.skip("this user may write everywhere")
    with pytest.raises(OSError, match=message):
        require_writable(tmp_path / name)
    require_writable(tmp_path / "y")
    assert sorted(os.listdir(tmp_path)) == ["closed", "folder"]


def writer(tmp_path, *words):
    """Runs a command with two outputs; returns its status and the files that it would write."""
    parser, written = argparse.ArgumentParser(prog="writer"), []
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", default="none")
    parser.add_argument("--gold", nargs="+", default=[])
    for flag in ("--output", "--json"):
        parser.add_argument(flag, type=output_file)
    parser.add_subparsers().add_parser("more").add_argument("--page", type=output_file)
    try:
        status = run_command(
            parser, lambda args: written.append(args.output), [word.format(tmp_path) for word in words]
        )
    except SystemExit as ended:
        status = ended.code
    return status, written


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["{0}/a", "--output", "{0}/a"], "--output {0}/a: is an input of this command"),
        (["{0}/a", "--output", "{0}/folder/../a"], "--output {0}/folder/../a: is an input"),
        (["{0}/a", "--output", "{0}/link"], "--output {0}/link: is an input"),
        (["{0}/b", "--json", "{0}/a", "--gold", "x", "{0}/a"], "--json {0}/a: is an input"),
        (["{0}/b", "--model", "{0}/c:{0}/a", "--output", "{0}/a"], "--output {0}/a: is an input"),
        (["{0}/folder", "--output", "{0}/folder/d"], "--output {0}/folder/d: is there already, in {0}/folder"),
        (["{0}/b", "--output", "{0}/new", "--json", "{0}/folder/../new"], "names the same file"),
        (["{0}/b", "--output", "{0}/new.zst"], "--output {0}/new.zst: is not written as .zst; take .gz"),
        (["{0}/b", "--output", "/dev/null"], "/dev/null: is no regular file"),
        (["{0}/a", "more", "--page", "{0}/a"], "--page {0}/a: is an input"),
    ],
)
def test_an_output_replaces_no_input(words, fault, tmp_path, capsys):
    (tmp_path / "folder").mkdir()
    for name in ("a", "b", "c", "folder/d"):
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("a")
    status, written = writer(tmp_path, *words)
    assert status in (1, 2)
    assert written == []
    assert fault.format(tmp_path) in capsys.readouterr().err


def test_an_output_does_not_replace_standard_input(tmp_path):
    (tmp_path / "a").write_text("text")
    check = "from pathlib import Path; from fairseq_poolingformer.command import check_output\n"
    check += f"check_output('--output', Path('{tmp_path / 'a'}'), '-')"
    with open(tmp_path / "a") as file:
        result = subprocess.run([sys.executable, "-c", check], stdin=file, capture_output=True, text=True)
    assert "is an input of this command" in result.stderr


def test_an_output_says_what_it_replaces(tmp_path, capsys):
    (tmp_path / "folder").mkdir()
    (tmp_path / "a").write_text("a")
    words = [f"{tmp_path}/folder", "--output", f"{tmp_path}/a", "--json", f"{tmp_path}/folder/new"]
    assert writer(tmp_path, *words) == (0, [tmp_path / "a"])
    assert capsys.readouterr().err == f"replaces {tmp_path}/a\n"
