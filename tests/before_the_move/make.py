"""Make the folders here and what they give; ``python -m tests.before_the_move.make`` runs on commit 045be78."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import sentencepiece
from safetensors.numpy import save_file

from tests.before_the_move.outputs import OUTPUTS, save_texts
from tests.before_the_move.runs import HERE, ROOT, RUNS, TRAINING, data_folder
from tests.downstream.released_files import TRIVIAQA_DOCUMENTS, write_hotpotqa, write_triviaqa
from tests.preprocess.test_wikihop import GOOD
from tests.tasks.mlm_folder import random_texts
from tests.text.tiny_gpt2 import write_vocabulary

FIXTURES = ROOT / "tests" / "preprocess" / "fixtures"


def run(*command: object) -> None:
    """Run a module of Python in the working directory."""
    print(*command)
    subprocess.run([sys.executable, "-m", *map(str, command)], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


def write_json(path: Path, records: list[dict], lines: bool = True) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    path.write_text("".join(texts) if lines else json.dumps(records, ensure_ascii=False), encoding="utf-8")


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def write_inputs(folder: Path) -> None:
    """Write each corpus in its released format."""
    write_vocabulary(folder / "gpt2")
    with open(folder / "gpt2" / "dict.txt", "a", encoding="utf-8") as dictionary:
        dictionary.write("madeupword0001 0\nmadeupword0002 0\n")
    texts = [text for text in random_texts(24, 60, seed=1) if len(text.split()) > 5][:12]
    papers = [{"article": text, "abstract": " ".join(text.split()[:5])} for text in texts]
    write_json(folder / "summarization/raw/papers.jsonl", papers)
    (folder / "masked_lm/raw").mkdir(parents=True)
    (folder / "masked_lm/raw/text.txt").write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    documents = [{"id": f"d{k}", "text": text, "label": ["no", "yes"][k % 2]} for k, text in enumerate(texts)]
    write_json(folder / "classification/raw/documents.jsonl", documents)
    copy(FIXTURES / "qa" / "nq_train.jsonl", folder / "question_answering/raw/questions.jsonl")
    copy(FIXTURES / "ontonotes" / "valid.v4_gold_conll", folder / "coreference/raw/documents.v4_gold_conll")
    questions = [
        {**GOOD, "id": f"WH_{k}", "supports": texts[k : k + 3], "answer": GOOD["candidates"][k % 2]} for k in range(6)
    ]
    write_json(folder / "wikihop/raw/questions.json", questions, lines=False)
    (folder / "hotpotqa/raw").mkdir(parents=True)
    write_hotpotqa(folder / "hotpotqa/raw/questions.json")
    (folder / "triviaqa/raw").mkdir(parents=True)
    write_triviaqa(folder / "triviaqa/raw")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts + list(TRIVIAQA_DOCUMENTS.values())),
        model_prefix=str(folder / "sentencepiece"),
        vocab_size=340,
        byte_fallback=True,
        normalization_rule_name="identity",  # whose table is not 240 kB
    )
    (folder / "sentencepiece.vocab").unlink()
    (folder / "char_lm/raw").mkdir(parents=True)
    (folder / "char_lm/raw/text").write_bytes(b"all work and no play makes jack a dull boy; " * 60)


def make() -> None:
    """Make the folders in the working directory."""
    write_inputs(HERE)
    for name, made in RUNS.items():
        data = data_folder(name)
        if not data.exists():
            corpus, *flags = made.corpus
            workers = () if corpus == "char_lm" else ("--workers", 1)
            run("fairseq_poolingformer.cli.main", "preprocess", corpus, *flags, "--output-folder", data, *workers)
        run(
            "fairseq_cli.train",
            data,
            *TRAINING,
            *made.training,
            "--save-dir",
            HERE / name,
            "--max-update",
            made.updates,
        )
        (HERE / name / "checkpoint_best.pt").unlink(missing_ok=True)
    for lock in HERE.rglob(".lock"):
        lock.unlink()
    source = HERE / "summarization" / "checkpoint_last.pt"
    run("fairseq_poolingformer.cli.main", "convert", "to-huggingface", source, "summarizer")
    shutil.make_archive(str(HERE / "transformers" / "summarizer"), "zip", "summarizer")


def main() -> None:
    """Make everything anew, in a folder with a name that says nothing of whose it is, since checkpoints keep it."""
    for name in ("gpt2", "char_lm", "transformers", *RUNS):
        shutil.rmtree(ROOT / HERE / name, ignore_errors=True)
    work = Path(tempfile.gettempdir(), "before_the_move")
    work.mkdir()
    (work / "fairseq_poolingformer").symlink_to(ROOT / "fairseq_poolingformer")
    os.chdir(work)
    make()
    shutil.copytree(HERE, ROOT / HERE, dirs_exist_ok=True)
    os.chdir(ROOT)
    shutil.rmtree(work)
    for (name, kind), outputs in OUTPUTS.items():
        with tempfile.TemporaryDirectory() as scratch:
            arrays, texts = outputs(Path(scratch))
        (HERE / name / "expected").mkdir(exist_ok=True)
        if arrays:
            save_file(arrays, HERE / name / "expected" / f"{kind}.safetensors")
        save_texts(HERE / name / "expected" / kind, texts)


if __name__ == "__main__":
    main()
