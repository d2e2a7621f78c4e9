"""Break the kernels on purpose, one fault at a time, and say what finds it: the sanitizer, the numbers, or nothing.

    python run_scripts/kernels/mutations.py FOLDER

Each fault is made in a copy of the package, with which execute.py then executes small calls until one finds it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from run_scripts.kernels.results import KERNELS, ROOT, Results


class Mutation(NamedTuple):
    """A fault: a file's text that is replaced, which occurs once, and the calls and the dtype that should find it."""

    name: str
    file: str
    old: str
    new: str
    calls: str
    dtype: str = "float32"


MUTATIONS = [
    Mutation(
        "a store without its mask",
        "tiles.py",
        "tl.store(places, values.to(x.dtype.element_ty), mask=exist)",
        "tl.store(places, values.to(x.dtype.element_ty))",
        "window",
    ),
    Mutation(
        "a load without its mask",
        "tiles.py",
        "    return tl.load(places, mask=exist, other=0.0)",
        "    return tl.load(places)",
        "window",
    ),
    Mutation(
        "a store of lse without its mask",
        "forward.py",
        "tl.store(lse + queries.to(tl.int64) * stride_lm, log_total, mask=queries < num_queries)",
        "tl.store(lse + queries.to(tl.int64) * stride_lm, log_total)",
        "window",
    ),
    Mutation(
        "the row after the last one counts as one",
        "tiles.py",
        "exist = (rows < count)[:, None]",
        "exist = (rows <= count)[:, None]",
        "window",
    ),
    Mutation(
        "the token after the last one is loaded",
        "tiles.py",
        "tl.load(token + index, mask=index < count, other=HIDDEN)",
        "tl.load(token + index, mask=index <= count, other=HIDDEN)",
        "globals",
    ),
    Mutation(
        "delta is not stored",
        "backward.py",
        "    tl.store(delta + place + queries.to(tl.int64) * stride_lm, row_delta, mask=queries < num_queries)\n",
        "",
        "window",
    ),
    Mutation(
        "a wrong stride: heads are found with that of rows",
        "backward.py",
        "    grad_out += batch * stride_ob + head * stride_oh",
        "    grad_out += batch * stride_ob + head * stride_om",
        "split",
    ),
    Mutation(
        "the last key of a window is not seen",
        "tiles.py",
        "(key_token <= last_token) if BANDED",
        "(key_token < last_token) if BANDED",
        "window",
    ),
    Mutation(
        "a split starts a block late",
        "tiles.py",
        "return first + split * size, ",
        "return first + split * (size + BLOCK), ",
        "split",
    ),
    Mutation(
        "a load and a store instead of an atomic addition",
        "tiles.py",
        '    tl.atomic_add(grad_table + distance + farthest, grad, mask=near, sem="relaxed")',
        "    before = tl.load(grad_table + distance + farthest, mask=near)\n"
        "    tl.store(grad_table + distance + farthest, before + grad, mask=near)",
        "bias",
    ),
    Mutation(
        "an atomic addition to a table of positions is a store",
        "positions.py",
        'tl.atomic_add(places, grad_rows, mask=exist & (grad_rows != 0.0), sem="relaxed")',
        "tl.store(places, grad_rows, mask=exist & (grad_rows != 0.0))",
        "positions",
    ),
    Mutation(
        "all splits write to one place",
        "tiles.py",
        "return (split * (tl.num_programs(0) // blocks) + batch_head).to(tl.int64) * length",
        "return batch_head.to(tl.int64) * length",
        "split",
    ),
    Mutation(
        "the output is summed in 16 bits",
        "forward.py",
        "weights.to(v.dtype), v, acc * fade[:, None]",
        "weights.to(v.dtype), v, (acc * fade[:, None]).to(v.dtype).to(tl.float32)",
        "steps",
        "bfloat16",
    ),
    Mutation(
        "scores are rounded to 16 bits",
        "tiles.py",
        "    scores = product * scale",
        "    scores = (product * scale).to(tl.bfloat16).to(tl.float32)",
        "window",
    ),
    Mutation(
        "the gradient of keys is summed in 16 bits",
        "backward.py",
        'grad_k = tl.dot(grad_scores.to(q.dtype), q, grad_k, input_precision="ieee")',
        'grad_k = tl.dot(grad_scores.to(q.dtype), q, grad_k.to(q.dtype).to(tl.float32), input_precision="ieee")',
        "steps",
        "bfloat16",
    ),
    Mutation(
        "the backward pass drops other weights",
        "backward.py",
        "kept = draw_kept(seed, dropped, draw, batch_head, queries, start, BLOCK_N)",
        "kept = draw_kept(seed, dropped, draw, batch_head, queries + 1, start, BLOCK_N)",
        "dropout",
    ),
    Mutation(
        "the farthest distance counts twice",
        "tiles.py",
        "near = (distance > -farthest)",
        "near = (distance >= -farthest)",
        "bias",
    ),
    Mutation(
        "a combined row forgets what came before",
        "forward.py",
        "            total = total * fade + weight",
        "            total = total + weight",
        "split",
    ),
]


def mutate(mutation: Mutation, folder: Path) -> int:
    """Change a copy of the package in ``folder``; the line of the fault."""
    package = "fairseq_poolingformer"
    shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / KERNELS.relative_to(ROOT) / mutation.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutation.old) != 1:
        raise ValueError(
            f"{mutation.file} has the text of the fault {mutation.name!r} {text.count(mutation.old)} times"
        )
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    return text[: text.index(mutation.old)].count("\n") + 1


def find(mutation: Mutation) -> dict[str, Any]:
    """What finds a fault, as :class:`execute.Finding` has it, and in which call."""
    with tempfile.TemporaryDirectory() as folder:
        line = mutate(mutation, Path(folder))
        command = [sys.executable, str(Path(__file__).with_name("execute.py"))]
        command += ["--calls", *mutation.calls.split(), "--dtypes", mutation.dtype]
        paths = [folder, str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        environment["TRITON_CACHE_DIR"] = f"{folder}/compiled"  # what is found there names another copy's files
        output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    rows = [json.loads(row) for row in output.splitlines()]
    found = next((row for row in rows if row["by"]), {"by": None, "call": mutation.calls, "what": rows[-1]["what"]})
    return {"place": f"{mutation.file}:{line}", **{name: found[name] for name in ("by", "call", "what")}}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    results = Results.of(given.folder, "mutations")
    for mutation in MUTATIONS:
        if mutation.name not in results:
            results.add(mutation.name, dtype=mutation.dtype, **find(mutation))
            print(results.rows[mutation.name], flush=True)
    return int(any(row["by"] is None for row in results))


if __name__ == "__main__":
    raise SystemExit(main())
