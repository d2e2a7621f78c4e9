import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import setuptools

from fairseq_poolingformer import __version__
from tests.text.tiny_gpt2 import write_vocabulary

ROOT = Path(__file__).resolve().parents[1]


def setup_arguments(monkeypatch):
    """The arguments that setup.py gives to setuptools."""
    arguments = {}
    monkeypatch.setattr(setuptools, "setup", arguments.update)
    runpy.run_path(str(ROOT / "setup.py"))
    return arguments


def test_the_description_has_no_links_into_the_repository(monkeypatch):
    description = setup_arguments(monkeypatch)["long_description"]
    assert re.findall(r"\]\((?!https?://)[^)]*\)", description) == []
    assert "![" not in description
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    unlinked = [line for line in readme.splitlines() if "](" not in line and line]
    assert [line for line in description.splitlines() if line in unlinked] == unlinked
    assert "[Poolingformer](https://arxiv.org/abs/2105.04371)" in description
    assert "what tells it from gossip (what it shows, and what not)." in " ".join(description.split())


def test_versions_agree(monkeypatch):
    assert setup_arguments(monkeypatch)["version"] == __version__
    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tracked():
    """The paths of the repository's files."""
    if not (ROOT / ".git").exists():
        pytest.skip("no git repository")
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    output = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [Path(name) for name in output.split("\0")[:-1] if (ROOT / name).exists()]


@pytest.fixture(scope="module")
def sdist(tracked, tmp_path_factory):
    """The unpacked source distribution."""
    source = tmp_path_factory.mktemp("source")
    for path in tracked:
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, source / path)
    with tarfile.open(build("sdist", source)) as archive:
        archive.extractall(source / "unpacked", filter="data")
    (unpacked,) = (source / "unpacked").iterdir()
    return unpacked


@pytest.fixture(scope="module")
def installed(sdist, tmp_path_factory):
    """A folder into which the wheel was installed that the source distribution makes."""
    target = tmp_path_factory.mktemp("installed")
    options = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", "--target", target]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, build("wheel", sdist)], check=True)
    return target


def build(kind: str, source: Path) -> Path:
    """The sdist or wheel of a folder."""
    code = f"import setuptools.build_meta as backend; print(); print(backend.build_{kind}('out'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return source / "out" / done.stdout.splitlines()[-1]


@pytest.mark.full
def test_the_source_distribution_has_every_file(tracked, sdist):
    assert [str(path) for path in tracked if not (sdist / path).is_file()] == []


@pytest.mark.full
def test_the_wheel_has_every_file_of_the_package(tracked, installed):
    files = [path for path in tracked if path.parts[0] == "fairseq_poolingformer"]
    assert Path("fairseq_poolingformer/py.typed") in files
    assert [str(path) for path in files if not (installed / path).is_file()] == []


SPAWNED = """import multiprocessing, sys
sys.platform = "darwin"  # where workers are new processes, which import what they run
from fairseq_poolingformer.preprocess.__main__ import main
status = main(sys.argv[1:])
import preprocess
sys.exit(status)"""


@pytest.mark.full
@pytest.mark.parametrize("spawned", [False, True])
def test_a_users_own_preprocess_is_neither_executed_nor_in_the_way(installed, tmp_path, spawned):
    names = {path.name for path in installed.iterdir()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"bin", "fairseq_poolingformer"}
    (tmp_path / "preprocess.py").write_text("open('executed', 'w')\n")
    dump, gpt2 = tmp_path / "dump.xml", write_vocabulary(tmp_path / "gpt2")
    shutil.copy(ROOT / "tests/preprocess/fixtures/wikipedia/small.xml", dump)
    options = ["--gpt2-bpe", gpt2, "--output-folder", "out", "--workers", "2", "--min-chars", "40", "--input", dump]
    program = ["-c", SPAWNED] if spawned else [installed / "bin" / "poolingformer", "preprocess"]
    done = subprocess.run(
        [sys.executable, *program, "wikipedia", *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f".{os.pathsep}{installed}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "corpus.json").is_file()
    assert (tmp_path / "executed").exists() == spawned  # which imports it afterwards
