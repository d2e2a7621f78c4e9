"""The one way to run a command."""

import argparse
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


def test_an_error_is_a_sentence_or_on_demand_a_traceback(capsys):
    def run(arguments):
        assert vars(arguments) == {}
        raise ValueError("wrong")

    assert run_command(argparse.ArgumentParser(prog="program"), run, []) == 1
    assert capsys.readouterr().err == "program: wrong\n"
    with pytest.raises(ValueError, match="wrong"):
        run_command(argparse.ArgumentParser(prog="program"), run, ["--traceback"])
