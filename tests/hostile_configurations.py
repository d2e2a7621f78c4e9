"""Random configurations of checkpoints through commands, each in a process of its own that is watched.

``python -m tests.hostile_configurations FOLDER FIRST COUNT`` runs the cases of these numbers and prints a JSON line for
each that did something that it must not, and the counts at the end. A case is made from its number alone.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fairseq_poolingformer.checkpoint_reader import checkpoints as checkpoint_files

SECRET = "the-secret-of-this-machine"
SECONDS = 30  # for a case
MEMORY = 2**31  # bytes beyond what the process has before it
BATCH = 20  # cases of one child, which the first one that dies ends
CANARIES = ("user.txt", "pipe", "folder", "notes.json", "piped-data")
WEIGHTS = {"finetune": 1, "restore": 1, "validate": 2}  # slow, and the first two build from the command line
# events of Python's audit hooks
FORBIDDEN = ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn")
CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "shutil.rmtree", "os.truncate")
CODE = "__import__('pathlib').Path('{canary}/user.txt').write_text('run')"
TEXTS = (
    *("{canary}/user.txt", "{canary}/pipe", "{canary}/folder", "{canary}/piped-data", "{canary}/notes.json"),
    *("/dev/zero", "/dev/stdin", "../../../{canary}/user.txt", "{canary}/new.txt", "~/user.txt", "\0", "x", ""),
    *("http://127.0.0.1:9/${oc.env:TOKEN}", "s3://127.0.0.1/x", "${oc.env:TOKEN}", "${task.data}", "${model}", "???"),
    *("none", "all", "gpt2", "True", "[(512, 3)] * 100000", "9" * 5000, "0-999999999", "1," * 5000, CODE, "w" * 10**5),
    *('{{"beam": 100000000}}', '{{"tokenizer": "{canary}/user.txt"}}', "9999999", "1e99", "learned", "sentencepiece"),
)
NUMBERS = (0, 1, 2, 3, 7, 48, -1, -(2**40), 2**16, 10**6, 2**23, 2**31, 2**63, 10**30, 10**5000)
NUMBERS += (0.1, 1.5, -0.5, 1e9, 1e300, float("nan"), float("inf"), True, False)
# what builds more, reads or writes when another option asks for it
KNOWN = (
    *("save_predictions", "replace_unk", "encoder_embed_path", "decoder_embed_path", "embed_path", "user_dir", "bpe"),
    *("gpt2_encoder_json", "gpt2_vocab_bpe", "bpe_codes", "sentencepiece_model", "tokenizer", "model_overrides"),
    *("finetune_from_model", "restore_file", "save_dir", "tensorboard_logdir", "log_file", "results_path", "lm_path"),
    *("pretrained_mlm_checkpoint", "pretrained_checkpoint", "quantization_config_path", "plasma_path", "path"),
    *("use_plasma_view", "source_dict", "target_dict", "lang_dict", "fixed_dictionary", "eval_bleu", "data", "tpu"),
    *("eval_bleu_args", "eval_bleu_detok_args", "eval_rouge_args", "scoring", "wandb_project", "aim_repo", "moses"),
)


def base_state(folder: Path) -> dict[str, Any]:
    """The state of a small summarizer in which nothing is wrong; writes its data folder."""
    from fairseq_poolingformer.text.tokenizers import GPT2Tokenizer
    from fairseq_poolingformer.weights.files import write_checkpoint
    from tests.models import tiny_bart
    from tests.text import tiny_gpt2

    examples = {split: [([5, 6, 7], [5])] for split in ("train", "valid", "test")}
    tiny_bart.write_data_folder(folder, splits=examples)
    vocabulary = tiny_gpt2.write_vocabulary(folder / "vocabulary")
    tokenizer = GPT2Tokenizer(*(vocabulary / name for name in GPT2Tokenizer.files))
    tokenizer.save(folder)
    for name in ("dict.source.txt", "dict.target.txt", "dict.txt", "dict.a.txt", "dict.b.txt"):
        tokenizer.write_dictionary(folder / name)
    (folder / "text").write_text("a text")
    model = ["--arch", "poolingformer_bart_tiny", *tiny_bart.SIZES, "--pooled-layers", "2"]
    args = tiny_bart.parse(folder, *model)
    _, built = tiny_bart.build(folder, *model)
    write_checkpoint(folder / "good.pt", vars(args), built.state_dict())
    return checkpoint_files.read(folder / "good.pt")


def write_canaries(folder: Path) -> None:
    """Files of the user's that a checkpoint may name, and that no command may open."""
    (folder / "folder").mkdir(parents=True)
    (folder / "piped-data").mkdir()
    (folder / "user.txt").write_text("the user's own")
    (folder / "notes.json").write_text("{}")
    os.mkfifo(folder / "pipe")
    os.mkfifo(folder / "piped-data" / "dict.source.txt")
    os.mkfifo(folder / "piped-data" / "corpus.json")


def option_names() -> dict[str, list[str]]:
    """Every option of every model, task and criterion that checkpoints may name, and of fairseq's other parts."""
    from dataclasses import fields, is_dataclass

    from fairseq import criterions, models, registry, tasks
    from fairseq.dataclass import configs

    from fairseq_poolingformer.patches.untrusted_files.own_options import declared

    names = {
        "model": sorted(models.ARCH_MODEL_REGISTRY),
        "task": sorted(tasks.TASK_REGISTRY),
        "criterion": sorted(criterions.CRITERION_REGISTRY),
    }
    names["common"] = sorted(
        {field.name for each in vars(configs).values() if is_dataclass(each) for field in fields(each)}
        | {
            f.name
            for r in registry.REGISTRIES.values()
            for each in r["dataclass_registry"].values()
            for f in fields(each)
        }
    )
    known = {
        kind: [name for name in names[kind] if _may_be_named(kind, name)] for kind in ("model", "task", "criterion")
    }
    names["options"] = sorted({option for kind in known for name in known[kind] for option in declared(kind, name)})
    return names | {f"known {kind}": known[kind] for kind in known}


def _may_be_named(kind: str, name: str) -> bool:
    from fairseq_poolingformer.patches.untrusted_files.own_options import check_configuration

    with contextlib.suppress(ValueError):
        check_configuration({"args": Namespace(**{"arch" if kind == "model" else kind: name})})
        return True
    return False


def random_state(number: int, good: dict[str, Any], names: dict[str, list[str]], canary: Path) -> dict[str, Any]:
    """The state of case ``number``: a few options of a good checkpoint changed, added or exchanged."""
    rng = random.Random(number)
    state = copy.deepcopy(good)
    options = vars(state["args"])
    for _ in range(rng.randint(1, 4)):
        pool = rng.choice([list(options), names["options"], names["options"], names["common"], list(KNOWN)])
        options[rng.choice(pool)] = _value(rng, str(canary), 2)
    if rng.random() < 0.3:
        kind = rng.choice(["model", "task", "criterion"])
        pool = names[f"known {kind}"] if rng.random() < 0.8 else [*names[kind], "no-such-name"]
        options["arch" if kind == "model" else kind] = rng.choice(pool)
    if rng.random() < 0.2:
        options["data"] = _value(rng, str(canary), 0)
    if rng.random() < 0.85:
        state["cfg"], state["args"] = _sections(options, rng), None
    return state


def _sections(options: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The same options as a training of today writes them: by section."""
    sections: dict[str, Any] = {"model": Namespace(**{**options, "_name": options.get("arch")})}
    for kind in ("task", "criterion", "generation", "common", "dataset", "checkpoint", "optimizer", "bpe", "tokenizer"):
        sections[kind] = {**options, "_name": options.get(kind)}
    if rng.random() < 0.2:
        sections["model"] = {**options, "_name": options.get("arch")}
    return sections


def _value(rng: random.Random, canary: str, depth: int) -> Any:
    kind = rng.choice(["text"] * 4 + ["number"] * 4 + ["list", "dict", "none"] * (depth > 0))
    if kind == "text":
        return rng.choice(TEXTS).replace("{{", "{").replace("}}", "}").replace("{canary}", canary)
    if kind == "number":
        return rng.choice(NUMBERS)
    values = [_value(rng, canary, depth - 1) for _ in range(rng.randint(0, 3))] if kind != "none" else []
    return None if kind == "none" else values if kind == "list" else {f"k{n}": value for n, value in enumerate(values)}


def commands() -> dict[str, Callable[[Path, Path], Any]]:
    """What opens a checkpoint: given it and the data folder."""
    from fairseq import checkpoint_utils, options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq_cli import train, validate

    from fairseq_poolingformer.cli import convert, sample_lm, show, summarize
    from fairseq_poolingformer.models import PoolingformerBART
    from tests.models import tiny_bart

    common = ["--task", "long_summarization", "--user-dir", tiny_bart.USER_DIR, "--cpu", "--num-workers", "0"]
    own = ["--arch", "poolingformer_bart_tiny", *tiny_bart.SIZES, "--pooled-layers", "2"]
    beam = ["--beam", "1", "--max-length", "3"]

    def parsed(parser: Any, *arguments: Any) -> Namespace:
        return options.parse_args_and_arch(parser, [str(argument) for argument in arguments])

    def run_train(flag: str, path: Path, data: Path) -> None:
        more = ["--optimizer", "adam", "--max-update", 1, "--no-save", "--batch-size", 1, "--disable-validation"]
        more += ["--save-dir", path.parent / "run", flag, path]
        args = parsed(options.get_training_parser(), data, *common, *own, *more)
        train.main(convert_namespace_to_omegaconf(args))

    def run_validate(path: Path, data: Path) -> None:
        more = ["--path", path, "--valid-subset", "valid", "--batch-size", 1]
        args = parsed(options.get_validation_parser(), data, *common, *more)
        validate.main(convert_namespace_to_omegaconf(args), override_args=Namespace(data=str(data)))

    return {
        "load": lambda path, data: checkpoint_utils.load_model_ensemble_and_task([str(path)]),
        "hub": lambda path, data: PoolingformerBART.from_pretrained(str(path.parent), path.name, str(data)),
        "summarize": lambda path, data: summarize.main(
            ["--checkpoint", str(path), "--data-folder", str(data), *beam, str(data / "text")]
        ),
        "summarize with its own data": lambda path, data: summarize.main(
            ["--checkpoint", str(path), *beam, str(data / "text")]
        ),
        "show": lambda path, data: show.main(
            [
                str(path),
                str(data / "text"),
                "--data-folder",
                str(data),
                *beam,
                "--output",
                str(path.parent / "page.html"),
            ]
        ),
        "convert": lambda path, data: convert.main(["to-huggingface", str(path), str(path.parent / "out")]),
        "sample-lm": lambda path, data: sample_lm.main(["--path", str(path), "--length", "3"]),
        "validate": run_validate,
        "finetune": lambda path, data: run_train("--finetune-from-model", path, data),
        "restore": lambda path, data: run_train("--restore-file", path, data),
    }


def watch(folder: Path, canary: Path, seen: list[str]) -> None:
    """Note what this process does that no configuration may make it do; from now on and without end."""
    allowed = (str(folder), os.devnull, "/tmp/torchinductor_")  # the last is a cache of torch's own

    def hook(event: str, arguments: tuple) -> None:
        if event in FORBIDDEN:
            seen.append(f"{event} {arguments[:2]!r}"[:200])
        elif event == "open" and isinstance(arguments[0], str | bytes):
            path, flags = os.path.abspath(os.fsdecode(arguments[0])), arguments[2] or 0
            if path.startswith((str(canary), "/dev/zero", "/dev/stdin")):
                seen.append(f"open {path}")
            elif flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and not path.startswith(allowed):
                seen.append(f"write {path}")
        elif event in CHANGES and not os.path.abspath(os.fsdecode(arguments[0])).startswith(allowed):
            seen.append(f"{event} {arguments[0]!r}")

    sys.addaudithook(hook)


def outcome(command: Callable, path: Path, data: Path) -> tuple[str, str]:
    """How a command ends, "done", "sentence", "unfit" or "traceback", and what it says."""
    from fairseq_poolingformer.patches.untrusted_files.checkpoints import WRONG_PARAMETERS, CheckpointError

    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
            status = command(path, data)
    except (CheckpointError, FileNotFoundError) as error:  # one_sentence prints these so
        said = str(error)
        return ("sentence" if "\n" not in said and len(said) < 2000 else "traceback"), said + printed.getvalue()
    except Exception as error:  # whatever is raised is the finding
        if type(error) is Exception and str(error).startswith(WRONG_PARAMETERS):
            return "sentence", str(error)
        trace = traceback.format_exc()
        # fairseq-validate takes the loss of the file, and where that does not fit the model says so in its own way
        if any(f"in {part}" in trace for part in ("valid_step", "build_criterion")):
            return "unfit", trace[-500:]
        return "traceback", trace[-3000:] + printed.getvalue()[-500:]
    return ("sentence" if status == 1 else "done"), printed.getvalue()


@dataclass
class Bench:
    """What every case needs.

    Attributes:
        folder: the one that commands may write into.
        good: a checkpoint's state in which nothing is wrong.
        names: of options, and of models, tasks and criterions.
        commands: by name.
    """

    folder: Path
    good: dict[str, Any]
    names: dict[str, list[str]]
    commands: dict[str, Callable]

    def run(self, numbers: range) -> Iterator[dict[str, Any]]:
        """Run cases in a child, and yield what each did; the last one may have ended the child."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            with contextlib.suppress(BaseException):
                self._in_child(numbers, write)
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            found = [json.loads(line) for line in pipe]
        _, status, usage = os.wait4(child, 0)
        for begun, ended in zip(found[::2], [*found[1::2], {"kind": "no answer"}], strict=False):
            yield {**begun, **ended, "megabytes": usage.ru_maxrss // 1024}
            if ended["kind"] == "no answer" and os.WIFSIGNALED(status):
                yield {**begun, "kind": f"signal {os.WTERMSIG(status)}", "megabytes": usage.ru_maxrss // 1024}

    def _in_child(self, numbers: range, write: int) -> None:
        seen: list[str] = []
        canary = self.folder / "canary"
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        watch(self.folder, canary, seen)
        kinds = sorted(self.commands)
        for number in numbers:
            work = self.folder / f"case{number}"
            work.mkdir()
            os.chdir(work)
            (command,) = random.Random(-number - 1).choices(kinds, [WEIGHTS.get(kind, 4) for kind in kinds])
            torch.save(random_state(number, self.good, self.names, canary), work / "x.pt")
            os.write(write, (json.dumps({"number": number, "command": command}) + "\n").encode())
            signal.alarm(SECONDS)
            began = time.monotonic()
            kind, said = outcome(self.commands[command], work / "x.pt", self.folder / "data")
            signal.alarm(0)
            if SECRET in said:
                seen.append("the environment was read")
            ended = {"kind": kind, "said": said[-2000:], "seen": seen, "seconds": time.monotonic() - began}
            os.write(write, (json.dumps(ended) + "\n").encode())
            seen.clear()


def main(folder: Path, first: int, count: int, seconds: float) -> None:
    """Run cases, and print those that did what they must not, and how often each end was met."""
    import torch._dynamo
    import torch._inductor  # that children need not import them

    import fairseq_poolingformer

    os.environ["TOKEN"] = SECRET
    sys.dont_write_bytecode = True
    tempfile.tempdir = str(folder)  # where commands may have files of their own
    torch.set_num_threads(1)
    fairseq_poolingformer.register()
    canary = folder / "canary"
    write_canaries(canary)
    bench = Bench(folder, base_state(folder / "data"), option_names(), commands())
    bench.commands["load"](folder / "data" / "good.pt", folder / "data")  # imports what children would import
    ends: Counter = Counter()
    largest, longest, start, number = 0, 0.0, time.monotonic(), first
    while number < first + count and time.monotonic() - start < seconds:
        for found in bench.run(range(number, min(number + BATCH, first + count))):
            number = found["number"] + 1
            shutil.rmtree(folder / f"case{found['number']}", ignore_errors=True)
            ends[found["kind"]] += 1
            largest, longest = max(largest, found["megabytes"]), max(longest, found.get("seconds", 0))
            if found["kind"] not in ("done", "sentence", "unfit") or found.get("seen"):
                print(json.dumps(found), flush=True)
        if (canary / "user.txt").read_text() != "the user's own" or len(list(canary.iterdir())) != len(CANARIES):
            print(json.dumps({"number": number, "kind": "a file of the user's was touched"}), flush=True)
            break
    counts = {"cases": number - first, "ends": ends, "megabytes": largest, "seconds": round(longest, 1)}
    print(json.dumps(counts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
