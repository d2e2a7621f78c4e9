"""What the folders beside this file give, by the ways that users have: commands, fairseq's loaders, transformers.

Paths are relative to the repository, which must be the working directory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import checkpoint_utils, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics
from fairseq.models import MODEL_REGISTRY
from torch import Tensor

import fairseq_poolingformer
from fairseq_poolingformer.cli.main import main as poolingformer
from tests.before_the_move.runs import CHARACTERS, HERE, ROOT, RUNS, TRAINING, data_folder

fairseq_poolingformer.register()
Outputs = tuple[dict[str, np.ndarray], dict[str, str]]  # arrays and texts by name


def checkpoint(name: str) -> str:
    return str(HERE / name / "checkpoint_last.pt")


def command(*arguments: object) -> str:
    """Run a command of this project's in this process; what it printed.

    Raises:
        AssertionError: it failed.
    """
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(printed):
        assert poolingformer([str(argument) for argument in arguments]) in (0, None)
    return printed.buffer.getvalue().decode(errors="backslashreplace")


def _in_fairseq(main: Callable, parser, *arguments: object) -> None:
    args = options.parse_args_and_arch(parser, [str(argument) for argument in arguments])
    distributed_utils.call_main(convert_namespace_to_omegaconf(args), main)


def train(name: str, folder: Path, *flags: object) -> dict[str, Tensor]:
    """Train as :data:`RUNS` says, with more flags; the parameters of the last checkpoint."""
    from fairseq_cli.train import main

    everything = (data_folder(name), *TRAINING, *RUNS[name].training, "--save-dir", folder, *flags)
    metrics.reset()
    _in_fairseq(main, options.get_training_parser(), *everything)
    return checkpoint_utils.load_checkpoint_to_cpu(str(folder / "checkpoint_last.pt"))["model"]


def tensors(value: Any) -> Iterator[Tensor]:
    """The tensors of floating point in a model's output, in their order."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield value.detach()
    elif dataclasses.is_dataclass(value):
        yield from tensors([getattr(value, field.name) for field in dataclasses.fields(value)])
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)


def logits(name: str, scratch: Path) -> Outputs:
    """Logits of the first row of ``valid``, of nine tokens where each has several, and the loss of every batch."""
    models, cfg, task = checkpoint_utils.load_model_ensemble_and_task(
        [checkpoint(name)], arg_overrides={"data": str(data_folder(name))}
    )
    (model,) = models
    task.load_dataset("valid")
    batches = task.get_batch_iterator(task.dataset("valid"), max_sentences=2).next_epoch_itr(shuffle=False)
    criterion, found, losses = task.build_criterion(cfg.criterion), {}, []
    model.eval()
    with torch.no_grad():
        for number, sample in enumerate(batches):
            if number == 0:
                output = model(**sample["net_input"])[0]
                rows = [tensor[:1, :9] if tensor.dim() == 3 else tensor[:1] for tensor in tensors(output)]
                found = {f"logits.{k}": row.contiguous().numpy() for k, row in enumerate(rows)}
            losses.append(float(criterion(model, sample)[0]))
    return {**found, "losses": np.array(losses, np.float32)}, {}


def predictions(name: str, scratch: Path) -> Outputs:
    """The official predictions, and their figures."""
    run, output, figures = RUNS[name], scratch / "predictions", scratch / "figures.json"
    path = ("--path", checkpoint(name), "--output", output, "--device", "cpu", "--num-workers", 0)
    command(*run.predict, data_folder(name), *path)
    scorer = ("score-qa",) if name == "question_answering" else ("score-task", run.training[1])
    command(*scorer, "--gold", run.gold, "--predictions", output, "--json", figures)
    return {}, {path.name: path.read_text(encoding="utf-8") for path in (output, figures)}


def summaries(name: str, scratch: Path) -> Outputs:
    """By poolingformer-summarize, the hub and fairseq-generate, whose output poolingformer-score reads."""
    from fairseq_cli.generate import main

    text = "the theory of the long document other another is that attention attends to what it attends to"
    (scratch / "document.txt").write_text(text, encoding="utf-8")
    data = data_folder(name)
    search = ("--min-length", 5, "--max-length", 8, "--device", "cpu", "--data-folder", data)
    summary = command("summarize", scratch / "document.txt", "--checkpoint", checkpoint(name), *search)
    hub = MODEL_REGISTRY["poolingformer_bart"].from_pretrained(str(HERE / name), "checkpoint_last.pt", str(data))
    _in_fairseq(
        *(main, options.get_generation_parser(), data, "--user-dir", "fairseq_poolingformer", "--cpu"),
        *("--task", "long_summarization", "--path", checkpoint(name), "--gen-subset", "test", "--num-workers", 0),
        *(
            "--beam",
            2,
            "--min-len",
            5,
            "--max-len-b",
            8,
            "--batch-size",
            4,
            "--results-path",
            scratch,
            "--no-progress-bar",
        ),
    )
    generated = scratch / "generate-test.txt"
    scores = command("score", generated, "--references", data / "test.summary.txt", "--no-perl")
    hypotheses = [line for line in generated.read_text(encoding="utf-8").splitlines() if line[:2] in ("D-", "T-")]
    lines = [summary.strip(), *hub.summarize([text], beam=2, max_length=8, min_length=5), *hypotheses, scores]
    return {}, {"summaries.txt": "\n".join(line.replace(str(scratch), "") for line in lines) + "\n"}


def characters(name: str, scratch: Path) -> Outputs:
    """What poolingformer-eval-lm and -sample-lm say."""
    data, path = data_folder(name), ("--path", checkpoint(name), "--device", "cpu")
    evaluated = command("eval-lm", data, *path, "--context", 48, "--stride", 12)
    sampled = command("sample-lm", *path, "--length", 20, "--prompt", "all work", "--top-k", 1)
    bits = {key: value for key, value in json.loads(evaluated).items() if isinstance(value, float | int)}
    return {}, {"characters.txt": json.dumps(bits) + "\n" + sampled}


def bits_by_distance(name: str, scratch: Path) -> Outputs:
    """What poolingformer-eval-mlm says."""
    path = ("--path", checkpoint(name), "--device", "cpu", "--output", scratch / "bits.json")
    command("eval-mlm", data_folder(name), *path, "--distances", 6, 20)
    text = (scratch / "bits.json").read_text(encoding="utf-8")
    return {}, {"bits.json": text.replace(f"{ROOT}/", "")}


def _moved(before: dict[str, Tensor], after: dict[str, Tensor]) -> Outputs:
    """The length of each parameter's update, later numbers weighted more; a parameter that is new counts as a whole."""
    lengths = {}
    for key, value in after.items():
        old = before.get(key)
        start = old.double() if old is not None and old.shape == value.shape else 0
        weights = torch.linspace(1, 2, value.numel(), dtype=torch.float64).reshape(value.shape)
        lengths[f"moved.{key}"] = np.array(((value.double() - start) * weights).norm())
    return lengths, {}


def resumed(name: str, scratch: Path) -> Outputs:
    """The parameters' changes in one more update of the training, from the optimizer's state."""
    after = train(name, scratch, "--restore-file", checkpoint(name), "--max-update", RUNS[name].updates + 1)
    return _moved(checkpoint_utils.load_checkpoint_to_cpu(checkpoint(name))["model"], after)


def finetuned(name: str, scratch: Path) -> Outputs:
    """The same of a task's first update, from the masked language model of fewer symbols and positions."""
    flags = ("--max-positions", 100, "--finetune-from-model", checkpoint("masked_lm"), "--max-update", 1)
    return _moved(
        checkpoint_utils.load_checkpoint_to_cpu(checkpoint("masked_lm"))["model"], train(name, scratch, *flags)
    )


IN_TRANSFORMERS = """
import sys
import torch, transformers
folder, *how = sys.argv[1:]
if not how:
    import fairseq_poolingformer.huggingface
else:
    sys.modules["fairseq_poolingformer"] = None  # as if it were not installed
    sys.modules["torchaudio"] = None
options = {"trust_remote_code": True} if how else {}
tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, **options).eval()
texts = ["the theory of the long document", "attention attends to what it attends to " * 3]
inputs = tokenizer(texts, return_tensors="pt", padding=True, truncation=True, max_length=60)
with torch.no_grad():
    torch.save([inputs["input_ids"], model(**inputs).logits], sys.argv[1] + "/found.pt")
"""


def in_transformers(scratch: Path, *how: str) -> Outputs:
    """Tokens and logits of a folder that poolingformer-convert wrote, by this package or by the code in the folder.

    Args:
        scratch: an empty folder.
        how: ``"remote"`` for the code in the folder.
    """
    shutil.unpack_archive(HERE / "transformers" / "summarizer.zip", scratch / "folder")
    environment = {**os.environ, "HF_HOME": str(scratch), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    arguments = [sys.executable, "-c", IN_TRANSFORMERS, str(scratch / "folder"), *how]
    subprocess.run(arguments, env=environment, cwd=scratch, check=True, capture_output=True)
    ids, found = torch.load(scratch / "folder" / "found.pt")
    return {"ids": ids.numpy(), "logits": found[:, :9].contiguous().numpy()}, {}


def converted(name: str, scratch: Path) -> Outputs:
    """The parameters of the checkpoint after its way to transformers and back."""
    command("convert", "to-huggingface", checkpoint(name), scratch / "folder")
    command("convert", "to-fairseq", scratch / "folder", scratch / "back")
    return _moved({}, checkpoint_utils.load_checkpoint_to_cpu(str(scratch / "back" / "model.pt"))["model"])


def encoded(name: str, scratch: Path) -> Outputs:
    """The data folder of a corpus, made again: the same bytes, which are not kept twice."""
    corpus, *flags = RUNS[name].corpus
    workers = () if corpus == "char_lm" else ("--workers", 1)
    command("preprocess", corpus, *flags, "--output-folder", scratch / "data", *workers)
    before = data_folder(name)
    files = [path.relative_to(before) for path in sorted(before.rglob("*")) if path.suffix in (".bin", ".idx", ".txt")]
    differ = [str(path) for path in files if (scratch / "data" / path).read_bytes() != (before / path).read_bytes()]
    return {}, {"differ.txt": "".join(f"{path}\n" for path in differ)}


def save_texts(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


OUTPUTS: dict[tuple[str, str], Callable[[Path], Outputs]] = {
    **{(name, "logits"): partial(logits, name) for name in RUNS},
    **{(name, "encoded"): partial(encoded, name) for name, run in RUNS.items() if run.corpus is not CHARACTERS},
    ("gaa_lm", "encoded"): partial(encoded, "gaa_lm"),
    **{(name, "predictions"): partial(predictions, name) for name, run in RUNS.items() if run.predict},
    ("summarization", "summaries"): partial(summaries, "summarization"),
    ("masked_lm", "bits"): partial(bits_by_distance, "masked_lm"),
    **{(name, "characters"): partial(characters, name) for name, run in RUNS.items() if run.corpus is CHARACTERS},
    **{(name, "resumed"): partial(resumed, name) for name in ("summarization", "gaa_lm")},
    ("classification", "finetuned"): partial(finetuned, "classification"),
    ("transformers", "logits"): in_transformers,
    ("transformers", "remote"): lambda scratch: in_transformers(scratch, "remote"),
    **{(name, "converted"): partial(converted, name) for name in ("summarization", "masked_lm")},
}
