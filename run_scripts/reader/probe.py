"""Does the reader read? Facts that it has right and, of each task of texts.py, what it makes of text that it never saw.

    python run_scripts/reader/probe.py [--folder DIR] [--documentation DIR] [--count 100]

Documents are like those that pretraining has in each stage, with names and prose that are held out. The bits a token of
the other tasks' targets stand beside those of a control that knows how often each token is, and the ROUGE-1 of what it
writes beside that of a few words that are copied: of a section its first, of code its function's name.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pretrain
import texts
import torch
from count_facts import shares_right
from fairseq_poolingformer.preprocess.facts import DocumentMaker, Shape
from pretrain import STAGES
from torch.nn import functional as F

from fairseq_poolingformer.models.hub import PoolingformerHubInterface
from fairseq_poolingformer.models.shipped_reader import FOLDER, load_reader
from fairseq_poolingformer.preprocess import facts
from fairseq_poolingformer.tasks.summarization.rouge import mean_f1
from fairseq_poolingformer.text.dictionary import PAD
from fairseq_poolingformer.text.table import aligned
from fairseq_poolingformer.text.tokenizers import load_tokenizer

FIRST_WORDS = 4  # of a section, as many as a title has on average


def probe(hub: PoolingformerHubInterface, shape: Shape, count: int) -> dict[str, float]:
    """The shares of facts right, by field and of ``all``, in summaries of ``count`` documents."""
    maker = DocumentMaker(facts.read_sentences(is_held_out=True), True, shape)
    documents = [maker.make(Random(f"probe {number}")) for number in range(count)]
    summaries = hub.summarize([one.text for one in documents], max_length=80, batch_size=20, beam=1)
    shares = shares_right(summaries, [one.summary for one in documents])
    return {name: share for name, (share, _) in shares.items()}


@torch.no_grad()
def bits_of(model: torch.nn.Module, pairs: list[pretrain.Pair]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The tokens of all targets without ``<s>``: each one, its bits, and whether it is in the source to be copied."""
    found = []
    for batch in pretrain.make_batches(pairs, 4096):
        source, previous, target, places = pretrain.tensors(batch, next(model.parameters()).device)
        logits, _ = model(source, None, previous)
        bits = F.cross_entropy(logits.float().flatten(0, 1), target.flatten(), reduction="none") / np.log(2)
        counted = target.ne(PAD)
        counted[:, 0] = False
        counted = counted.flatten()
        found.append([part.flatten()[counted].cpu().numpy() for part in (target, bits, places.ge(0))])
    tokens, bits, copied = map(np.concatenate, zip(*found, strict=True))
    return tokens, bits, copied


def control_bits(seen: list[pretrain.Pair], tokens: np.ndarray, symbols: int) -> np.ndarray:
    """The bits of tokens for a control that knows how often each is in the targets of the training, plus one."""
    counts = np.ones(symbols)
    for pair in seen:
        np.add.at(counts, pair.target[1:], 1)
    return -np.log2(counts / counts.sum())[tokens]


def copied_words(task: str, text: str) -> str:
    """What says something without reading: the first words of a section, the name of a function in words."""
    if task == "title":
        return " ".join(text.split()[:FIRST_WORDS])
    name = re.search(r"def\s+(\w+)", text).group(1)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", name).strip()


def text_rows(hub: PoolingformerHubInterface, folder: Path, documentation: Path | None, count: int) -> list[list[str]]:
    """A row of measures for each task of texts.py."""
    tokenizer = load_tokenizer(folder)
    seen, held_out = (texts.Texts.read(documentation, is_held_out) for is_held_out in (False, True))
    rows = [["task", "tokens", "bits a token", "control", "R-1", "copied words"]]
    for task in held_out.tasks(pretrain.TASKS):
        rng = Random(f"probe {task}")
        draw = [pretrain.make_text_pair(task, seen, tokenizer, rng) for _ in range(2000)]
        examples = {"title": held_out.sections, "explain": held_out.functions}.get(task, [])
        examples = rng.sample(examples, min(count, len(examples)))
        if task == "restore":
            pairs = [pretrain.make_text_pair(task, held_out, tokenizer, rng) for _ in range(count)]
        else:
            pairs = [pretrain.example_pair(task, *example, tokenizer) for example in examples]
        tokens, bits, copied = bits_of(hub.model, pairs)
        control = control_bits(draw, tokens, len(tokenizer))
        for name, chosen in {"": ~copied, ", the tokens not left out": copied}.items():
            if chosen.any():
                means = (f"{values[chosen].mean():.2f}" for values in (bits, control))
                rows.append([task + name, str(chosen.sum()), *means])
        if examples:
            written = hub.summarize(
                [texts.instructed(pretrain.CUES[task], text) for _, text in examples],
                **{"max_length": 40, "batch_size": 20, "beam": 1},
            )
            wanted = [head for head, _ in examples]
            rows[-1] += [_rouge(written, wanted), _rouge([copied_words(task, text) for _, text in examples], wanted)]
    return [row + [""] * (len(rows[0]) - len(row)) for row in rows]


def _rouge(hypotheses: Sequence[str], references: Sequence[str]) -> str:
    return f"{mean_f1(hypotheses, references)['rouge1']:.1f}"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the reader (default: the one that is shipped)")
    parser.add_argument("--documentation", type=Path, metavar="DIR", help="as for pretrain.py")
    parser.add_argument("--count", type=int, default=100, help="documents of each kind (default: %(default)s)")
    args = parser.parse_args()
    hub = load_reader(args.folder)
    for number, (shape, _) in enumerate(STAGES, 1):
        shares = probe(hub, shape, args.count)
        shares_text = ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items())
        print(f"documents of stage {number}: {shares_text}", flush=True)
    print(aligned(text_rows(hub, args.folder, args.documentation, args.count)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
