"""Results that a later call continues from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "fairseq_poolingformer" / "attention" / "backends" / "triton"
FILES = "test_backend.py", "test_positions.py", "test_pooling.py", "test_one_softmax.py"
TESTS = [ROOT / "tests/attention/backends/triton" / name for name in FILES]
CALLS = ROOT / "tests" / "attention" / "calls.py"


def fingerprint() -> str:
    """A hash of all that results depend on, so that those of other kernels or versions do not count."""
    parts = [f"{package} {version(package)}" for package in ("ttsem", "triton", "torch")]
    parts += [path.read_text(encoding="utf-8") for path in (*sorted(KERNELS.glob("*.py")), *TESTS, CALLS)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


class Results:
    """Rows of a file of JSON lines by their keys, the last one of a key; only those of one fingerprint count."""

    def __init__(self, path: Path, mark: str) -> None:
        self.path, self.mark, self.rows = path, mark, dict[str, dict[str, Any]]()
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            row = json.loads(line)
            if row["mark"] == mark:
                self.rows[row["key"]] = row

    @classmethod
    def of(cls, folder: Path) -> Results:
        """The results in a folder."""
        return cls(folder / "cases.jsonl", fingerprint())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows.values())

    def add(self, key: str, **row: Any) -> None:
        """Append a row, which a call that is killed afterwards leaves behind."""
        self.rows[key] = row = {"key": key, "mark": self.mark, **row}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
