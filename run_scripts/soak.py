"""Trains a tiny model again and again under attack, and compares each end with the uninterrupted training.

    run_scripts/soak.sh rounds=50

Each round starts a training that saves after every update, attacks it, repeats the same command until it ends, and
compares parameters and optimizer with those of a training that nothing happened to, bit for bit.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from fairseq_poolingformer.compat.interruption import STOPPED
from fairseq_poolingformer.text.table import aligned

PACKAGE = Path(__file__).resolve().parents[1] / "fairseq_poolingformer"
LAST = "checkpoint_last.pt"
LARGEST_FILE = 20_000  # bytes, of a disk that is as good as full


class NotSurvived(Exception):
    """A round that ended in another way than it must; the message says how."""


@dataclass
class Soak:
    """One data folder and the command that trains on it."""

    data: Path
    updates: int
    rng: random.Random

    def command(self, save_dir: Path) -> list[str]:
        """A training of so small a model that it takes seconds."""
        sizes = ["--encoder-layers", "2", "--decoder-layers", "1", "--pooled-layers", "1"]
        for side in ("encoder", "decoder"):
            sizes += [f"--{side}-embed-dim", "16", f"--{side}-ffn-embed-dim", "16", f"--{side}-attention-heads", "2"]
        return [
            *(sys.executable, "-m", "fairseq_cli.train", str(self.data), "--user-dir", str(PACKAGE), "--cpu"),
            *("--task", "long_summarization", "--arch", "poolingformer_bart_tiny", *sizes),
            *("--criterion", "linear_cross_entropy", "--optimizer", "fused_adamw", "--lr", "1e-3", "--batch-size", "4"),
            *("--max-update", str(self.updates), "--num-workers", "1", "--disable-validation", "--seed", "1"),
            *("--save-dir", str(save_dir), "--save-interval-updates", "1", "--keep-interval-updates", "2"),
            *("--no-epoch-checkpoints", "--log-format", "simple", "--log-interval", "1"),
        ]

    def start(self, save_dir: Path, **options) -> subprocess.Popen:
        """Start the training; what it prints goes to a file beside its checkpoints."""
        save_dir.mkdir(parents=True, exist_ok=True)
        with open(save_dir / "train.out", "a", encoding="utf-8") as log:
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            return subprocess.Popen(
                self.command(save_dir), env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **options
            )

    def complete(self, save_dir: Path) -> Path:
        """Train to the end, in one start of the same command.

        Raises:
            NotSurvived: the command fails.
        """
        status = self.start(save_dir).wait()
        if status:
            raise NotSurvived(f"the same command ended with status {status}; see {save_dir}/train.out")
        return save_dir / LAST

    def wait_for_update(self, process: subprocess.Popen, save_dir: Path) -> None:
        """Wait until a random one of the first updates is saved."""
        wanted = self.rng.randint(1, max(1, self.updates // 2))
        while process.poll() is None and not (save_dir / f"checkpoint_1_{wanted}.pt").exists():
            if any(_update(path) >= wanted for path in save_dir.glob("checkpoint_*_*.pt")):
                return
            time.sleep(0.002)


def _update(path: Path) -> int:
    return int(path.stem.rpartition("_")[2])


def kill(soak: Soak, save_dir: Path) -> None:
    """SIGKILL at a random instant."""
    process = soak.start(save_dir)
    soak.wait_for_update(process, save_dir)
    time.sleep(soak.rng.uniform(0, 0.2))
    process.kill()
    process.wait()


def kill_while_saving(soak: Soak, save_dir: Path) -> None:
    """SIGKILL while a checkpoint is written."""
    process = soak.start(save_dir)
    soak.wait_for_update(process, save_dir)
    while process.poll() is None and not any(save_dir.glob("*.tmp")):
        pass
    process.kill()
    process.wait()


def terminate(soak: Soak, save_dir: Path) -> None:
    """SIGTERM, or SLURM's SIGUSR1: saves first."""
    process = soak.start(save_dir)
    soak.wait_for_update(process, save_dir)
    process.send_signal(soak.rng.choice([signal.SIGTERM, signal.SIGUSR1]))
    if process.wait() not in (STOPPED, 0):
        raise NotSurvived(f"the signal ended the training with status {process.returncode}, not {STOPPED}")


def fill_disk(soak: Soak, save_dir: Path) -> None:
    """No file may grow any more: the checkpoints that are there stay whole."""
    kill(soak, save_dir)
    before = torch.load(save_dir / LAST, weights_only=False)["optimizer_history"]

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))

    shutil.rmtree(save_dir / "log", ignore_errors=True)
    (save_dir / "train.out").unlink()
    status = soak.start(save_dir, preexec_fn=limit).wait()
    finished = before[-1]["num_updates"] >= soak.updates
    if status == 0 and not finished:
        raise NotSurvived("the training went on without being able to save")
    if torch.load(save_dir / LAST, weights_only=False)["optimizer_history"] != before:
        raise NotSurvived("the full disk changed the last checkpoint")


def flip(soak: Soak, save_dir: Path) -> None:
    """One bit of the last checkpoint is flipped."""
    kill(soak, save_dir)
    last = save_dir / LAST
    data = bytearray(last.read_bytes())
    data[soak.rng.randrange(len(data))] ^= 1 << soak.rng.randrange(8)
    last.unlink()  # the other name of the same file stays whole
    last.write_bytes(data)


def truncate(soak: Soak, save_dir: Path) -> None:
    """The last checkpoint is cut at a random byte."""
    kill(soak, save_dir)
    last = save_dir / LAST
    data = last.read_bytes()
    last.unlink()
    last.write_bytes(data[: soak.rng.randrange(len(data))])


ATTACKS: dict[str, Callable[[Soak, Path], None]] = {
    "killed": kill,
    "killed while saving": kill_while_saving,
    "asked to stop": terminate,
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
    subprocess.run(
        [
            *(sys.executable, "-m", "preprocess.arxiv_pubmed", *splits, "--sentencepiece-train", "300"),
            *("--output-folder", str(folder / "data"), "--workers", "1"),
        ],
        cwd=PACKAGE.parent,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return folder / "data"


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
    began = time.monotonic()
    args.folder.mkdir(parents=True)
    soak = Soak(make_data(args.folder), args.updates, random.Random(args.seed))
    expected = soak.complete(args.folder / "uninterrupted")
    counts = {name: [0, 0] for name in ATTACKS}
    for number in range(args.rounds):
        if time.monotonic() - began > args.seconds:
            break
        name = list(ATTACKS)[number % len(ATTACKS)]
        save_dir = args.folder / f"round{number}"
        counts[name][0] += 1
        try:
            ATTACKS[name](soak, save_dir)
            difference = differs(soak.complete(save_dir), expected)
            if difference:
                raise NotSurvived(difference)
        except NotSurvived as error:
            print(f"round {number}, {name}: {error}", file=sys.stderr)
            continue
        counts[name][1] += 1
        shutil.rmtree(save_dir)
    rows = [[name, str(tried), str(survived)] for name, (tried, survived) in counts.items()]
    totals = [sum(column) for column in zip(*counts.values(), strict=True)]
    print(aligned([["attack", "tried", "survived"], *rows, ["all", *map(str, totals)]]))
    return int(totals[0] != totals[1] or totals[0] == 0)


if __name__ == "__main__":
    sys.exit(main())
