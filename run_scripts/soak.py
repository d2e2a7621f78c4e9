"""Trains a tiny model again and again under attack, and compares each end with the uninterrupted training.

    run_scripts/soak.sh rounds=50

Each round starts a training that saves after every update, attacks it, repeats the same command until it ends, and
compares parameters and optimizer with those of a training that nothing happened to, bit for bit.

fairseq and torch are imported once: each training is a process forked from this one, so that a round takes seconds.
"""

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import fairseq_cli.train
import torch

import fairseq_poolingformer
from fairseq_poolingformer.patches.long_jobs.interruption import STOPPED
from fairseq_poolingformer.preprocess import arxiv_pubmed
from fairseq_poolingformer.text.table import aligned

PACKAGE = Path(fairseq_poolingformer.__file__).parent
LAST = "checkpoint_last.pt"
LARGEST_FILE = 20_000  # bytes, where files may not grow any more
LONGEST_SAVE = 0.02  # seconds from the first byte of a checkpoint within which a kill finds it unfinished


class NotSurvived(Exception):
    """A round that ended in another way than it must; the message says how."""


@dataclass
class Soak:
    """One data folder and the command that trains on it.

    Attributes:
        data: the data folder.
        updates: how many updates a training makes.
        rng: chooses the instants.
        expected: the last checkpoint of the uninterrupted training.
        duration: seconds that it took.
        kills: how many trainings were killed.
        kills_in_saves: how many of them while they wrote a checkpoint.
    """

    data: Path
    updates: int
    rng: random.Random
    expected: Path = Path()
    duration: float = 0.0
    kills: int = field(default=0, init=False)
    kills_in_saves: int = field(default=0, init=False)

    def command(self, save_dir: Path) -> list[str]:
        """Return the arguments of fairseq-train for so small a model that a training takes a second or two."""
        sizes = ["--encoder-layers", "2", "--decoder-layers", "1", "--pooled-layers", "1"]
        for side in ("encoder", "decoder"):
            sizes += [f"--{side}-embed-dim", "16", f"--{side}-ffn-embed-dim", "16", f"--{side}-attention-heads", "2"]
        return [
            *(str(self.data), "--user-dir", str(PACKAGE), "--cpu"),
            *("--task", "long_summarization", "--arch", "poolingformer_bart_tiny", *sizes),
            *("--criterion", "linear_cross_entropy", "--optimizer", "fused_adamw", "--lr", "1e-3", "--batch-size", "4"),
            *("--max-update", str(self.updates), "--num-workers", "1", "--disable-validation", "--seed", "1"),
            *("--save-dir", str(save_dir), "--save-interval-updates", "1", "--keep-interval-updates", "2"),
            *("--no-epoch-checkpoints", "--log-format", "simple", "--log-interval", "1"),
        ]

    def start(self, save_dir: Path, prepare: Callable[[], None] | None = None) -> multiprocessing.Process:
        """Start the training; what it prints goes to ``{save_dir}.out``.

        Args:
            save_dir: its folder of checkpoints.
            prepare: called in the new process before the training.
        """
        save_dir.mkdir(parents=True, exist_ok=True)

        def train() -> None:
            log = os.open(f"{save_dir}.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(log, 1)
            os.dup2(log, 2)
            if prepare:
                prepare()
            sys.argv = ["fairseq-train", *self.command(save_dir)]
            fairseq_cli.train.cli_main()

        sys.stdout.flush()
        process = multiprocessing.get_context("fork").Process(target=train)
        process.start()
        return process

    def complete(self, save_dir: Path) -> Path:
        """Train to the end, in one start of the same command.

        Raises:
            NotSurvived: the command fails.
        """
        process = self.start(save_dir)
        process.join()
        if process.exitcode:
            raise NotSurvived(f"the same command ended with status {process.exitcode}; see {save_dir}.out")
        return save_dir / LAST

    def wait_for_update(self, process: multiprocessing.Process, save_dir: Path) -> None:
        """Wait until a random one of the first updates is saved, or the training has ended."""
        wanted = self.rng.randint(1, max(1, self.updates // 2))
        while process.is_alive() and not any(_update(path) >= wanted for path in save_dir.glob("checkpoint_*_*.pt")):
            time.sleep(0.002)

    def end(self, process: multiprocessing.Process, save_dir: Path) -> bool:
        """Kill a training; returns False if it had ended before."""
        process.kill()
        process.join()
        killed = process.exitcode == -signal.SIGKILL
        self.kills += killed
        self.kills_in_saves += killed and _saving(save_dir)
        return killed


def _saving(save_dir: Path) -> bool:
    """Whether a checkpoint is being written, or was when its process ended."""
    return any(path.suffix in (".tmp", ".unfinished") for path in save_dir.iterdir())


def _update(path: Path) -> int:
    return int(path.stem.rpartition("_")[2])


def kill(soak: Soak, save_dir: Path) -> None:
    """SIGKILL at a random instant, the start included."""
    while True:
        process = soak.start(save_dir)
        process.join(soak.rng.uniform(0, soak.duration))
        if soak.end(process, save_dir):
            return
        shutil.rmtree(save_dir)  # the instant was after the end


def kill_after_a_save(soak: Soak, save_dir: Path) -> None:
    """SIGKILL at a random instant at which there is a last checkpoint."""
    while True:
        process = soak.start(save_dir)
        soak.wait_for_update(process, save_dir)
        if soak.end(process, save_dir) and (save_dir / LAST).exists():
            return
        shutil.rmtree(save_dir)


def kill_while_saving(soak: Soak, save_dir: Path) -> None:
    """SIGKILL while a checkpoint is written: between its first byte and its last name."""
    while True:
        process = soak.start(save_dir)
        soak.wait_for_update(process, save_dir)
        while process.is_alive() and not _saving(save_dir):
            pass
        time.sleep(soak.rng.uniform(0, LONGEST_SAVE))
        before = soak.kills_in_saves
        if not soak.end(process, save_dir):
            shutil.rmtree(save_dir)
        elif soak.kills_in_saves > before:
            return


def terminate(soak: Soak, save_dir: Path) -> None:
    """SIGTERM, or SLURM's SIGUSR1: saves first."""
    process = soak.start(save_dir)
    soak.wait_for_update(process, save_dir)
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, soak.rng.choice([signal.SIGTERM, signal.SIGUSR1]))
    process.join()
    if process.exitcode not in (STOPPED, 0):
        raise NotSurvived(f"the signal ended the training with status {process.exitcode}, not {STOPPED}")


def limit_files(soak: Soak, save_dir: Path) -> None:
    """No file may grow any more: the checkpoints that are there stay whole."""
    kill_after_a_save(soak, save_dir)

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))

    before = _history(save_dir)
    Path(f"{save_dir}.out").unlink()
    _fail_to_save(soak.start(save_dir, limit))
    if _history(save_dir) != before:
        raise NotSurvived("a save that failed changed the last checkpoint")


def fill_disk(soak: Soak, save_dir: Path) -> None:
    """A disk without space for the third or fourth checkpoint, and later with space."""
    with mounted(save_dir, int(soak.rng.uniform(1.2, 2.9) * soak.expected.stat().st_size)):
        _fail_to_save(soak.start(save_dir))
        shutil.copytree(save_dir, f"{save_dir}.copy")
    save_dir.rmdir()
    Path(f"{save_dir}.copy").rename(save_dir)
    if _saving(save_dir):
        raise NotSurvived("the full disk left a half file")


def _fail_to_save(process: multiprocessing.Process) -> None:
    process.join()
    if process.exitcode != 1:
        raise NotSurvived(f"without space for a checkpoint the training ended with status {process.exitcode}, not 1")


def _history(save_dir: Path) -> list:
    return torch.load(save_dir / LAST, weights_only=False)["optimizer_history"]


@contextlib.contextmanager
def mounted(folder: Path, size: int) -> Iterator[None]:
    """Within the block, make a folder a file system of its own of so many bytes.

    Raises:
        OSError: this process may not mount one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(mount, stderr=subprocess.DEVNULL).returncode:
        raise OSError("this process may not mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def flip(soak: Soak, save_dir: Path) -> None:
    """One bit of the last checkpoint is flipped."""
    kill_after_a_save(soak, save_dir)
    last = save_dir / LAST
    data = bytearray(last.read_bytes())
    data[soak.rng.randrange(len(data))] ^= 1 << soak.rng.randrange(8)
    last.unlink()  # the other name of the same file stays whole
    last.write_bytes(data)


def truncate(soak: Soak, save_dir: Path) -> None:
    """The last checkpoint is cut at a random byte."""
    kill_after_a_save(soak, save_dir)
    last = save_dir / LAST
    data = last.read_bytes()
    last.unlink()
    last.write_bytes(data[: soak.rng.randrange(len(data))])


ATTACKS: dict[str, Callable[[Soak, Path], None]] = {
    "killed": kill,
    "killed while saving": kill_while_saving,
    "asked to stop": terminate,
    "files cannot grow": limit_files,
    "disk full": fill_disk,
    "a bit flipped": flip,
    "checkpoint cut": truncate,
}


def make_data(folder: Path) -> Path:
    """A data folder of random words; returns it."""
    rng, words = random.Random(0), [f"word{number}" for number in range(60)]
    for split, count in (("train", 40), ("valid", 4), ("test", 4)):
        with open(folder / f"{split}.jsonl", "w", encoding="utf-8") as file:
            for _ in range(count):
                text = rng.choices(words, k=rng.randint(40, 90))
                file.write(json.dumps({"article": " ".join(text), "abstract": " ".join(text[:6])}) + "\n")
    splits = [part for name in ("train", "valid", "test") for part in (f"--{name}", str(folder / f"{name}.jsonl"))]
    options = ["--sentencepiece-train", "300", "--output-folder", str(folder / "data"), "--workers", "1"]
    with contextlib.redirect_stdout(io.StringIO()):
        arxiv_pubmed.main([*splits, *options])
    return folder / "data"


def survive(soak: Soak, attack: Callable[[Soak, Path], None], save_dir: Path) -> None:
    """Attack one training, complete it, compare it with the uninterrupted one, and remove it.

    Raises:
        NotSurvived: it ended in another way.
    """
    attack(soak, save_dir)
    difference = differs(soak.complete(save_dir), soak.expected)
    if difference:
        raise NotSurvived(difference)
    shutil.rmtree(save_dir)
    Path(f"{save_dir}.out").unlink()


def differs(first: Path, second: Path) -> str | None:
    """Name the first entry that differs between two checkpoints' parameters and optimizers; None if none does."""
    states = [torch.load(path, weights_only=False) for path in (first, second)]
    for part in ("model", "last_optimizer_state"):
        try:
            torch.testing.assert_close(dict(states[0][part]), dict(states[1][part]), rtol=0, atol=0)
        except AssertionError as error:
            return f"{part}: {str(error).splitlines()[0]}"
    return None


def main() -> int:
    """Run all rounds and print a table of those tried and survived; the status is 1 when one was not survived."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="a new folder to work in")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--updates", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=3600.0, help="start no round after so many (default: 3600)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)  # processes are forked from this one: it may have no threads
    fairseq_poolingformer.register()
    began = time.monotonic()
    args.folder.mkdir(parents=True)
    attacks = dict(ATTACKS)
    try:
        with mounted(args.folder / "mounted", 2**20):
            pass
    except OSError as error:
        print(f"disk full: not tried, as {error}", file=sys.stderr)
        del attacks["disk full"]
    soak = Soak(make_data(args.folder), args.updates, random.Random(args.seed))
    started = time.monotonic()
    soak.expected = soak.complete(args.folder / "uninterrupted")
    soak.duration = time.monotonic() - started
    counts = {name: [0, 0] for name in attacks}
    turns = [*attacks, "killed while saving"]  # a third of the kills of a cycle fall into a save
    for number in range(args.rounds):
        if time.monotonic() - began > args.seconds:
            break
        name = turns[number % len(turns)]
        counts[name][0] += 1
        try:
            survive(soak, attacks[name], args.folder / f"round{number}")
        except NotSurvived as error:
            print(f"round {number}, {name}: {error}", file=sys.stderr)
        else:
            counts[name][1] += 1
    rows = [[name, str(tried), str(survived)] for name, (tried, survived) in counts.items()]
    totals = [sum(column) for column in zip(*counts.values(), strict=True)]
    print(aligned([["attack", "tried", "survived"], *rows, ["all", *map(str, totals)]]))
    print(f"{soak.kills} kills, {soak.kills_in_saves} of them inside a save; {time.monotonic() - began:.0f} s")
    return int(totals[0] != totals[1] or totals[0] == 0)


if __name__ == "__main__":
    sys.exit(main())
