"""The one way to run a command."""

import argparse
import os
import subprocess
import sys

import pytest

from fairseq_poolingformer.cli.command import run_command

PROGRAM = """
import argparse, os, sys
from fairseq_poolingformer.cli.command import run_command

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


@pytest.mark.parametrize(
    "command", ["fairseq_poolingformer.cli.main --help", "fairseq_poolingformer.cli.score --help", "preprocess --help"]
)
def test_a_reader_who_has_seen_enough_is_no_error(command):
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run([sys.executable, "-m", *command.split()], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (result.returncode, result.stderr) == (0, "")


def test_an_error_is_a_sentence_or_on_demand_a_traceback(capsys):
    def run(arguments):
        assert vars(arguments) == {}
        raise ValueError("wrong")

    assert run_command(argparse.ArgumentParser(prog="program"), run, []) == 1
    assert capsys.readouterr().err == "program: wrong (--traceback shows where)\n"
    with pytest.raises(ValueError, match="wrong"):
        run_command(argparse.ArgumentParser(prog="program"), run, ["--traceback"])
