"""Train the demo model from nothing: a small BART that finds facts in documents, restores text and names it.

python run_scripts/demo_model/pretrain.py --output-folder demo_model [--documentation DIR]

Most updates are of documents that are made as they are needed (preprocess/facts.py), of a few sentences first, then of
more; the others are of the tasks of texts.py. Reading begins within minutes because the first documents are short and
no name comes twice, the embeddings are tied, the decoder's cross-attention starts by handing on what it attends to, and
its last layer is told where each name is in the document. Killed, the same command resumes. The result is a folder like
fairseq_poolingformer/demo_model.
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import texts
import torch
from fairseq import options, tasks
from fairseq.modules import SinusoidalPositionalEmbedding
from fairseq_poolingformer.preprocess.facts import SUMMARIES, DocumentMaker, FactDocument, Shape
from fairseq_poolingformer.preprocess.pipeline.records import pack, unpack
from fairseq_poolingformer.preprocess.pipeline.run import Corpus
from fairseq_poolingformer.preprocess.pipeline.splits import SplitRecords
from fairseq_poolingformer.preprocess.pipeline.vocabulary import train_sentencepiece
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_poolingformer.models.demo_model import write_demo_model
from fairseq_poolingformer.preprocess import facts
from fairseq_poolingformer.settings import DEFAULTS
from fairseq_poolingformer.text.atomic_write import atomic_write
from fairseq_poolingformer.text.dictionary import BOS, EOS, PAD
from fairseq_poolingformer.text.tokenizers import Tokenizer, load_tokenizer

STAGES = (  # what documents are like, and for which share of the rounds; up to half are like those of a stage before
    (Shape(words=(0, 20), fields=(1, 5), papers=(1, 1), gossip=0), 0.15),
    (Shape(words=(0, 60), fields=(3, 5), papers=(1, 2), gossip=0.5), 0.2),
    (Shape(words=(20, 110), fields=(5, 5), papers=(2, 4), gossip=1), 0.1),
    (Shape(words=(20, 110), fields=(2, 5), papers=(2, 4), gossip=1), 0.25),
    (Shape(words=(40, 260), fields=(2, 5), papers=(2, 6), gossip=1), 0.3),
)
ROUNDS = 155
ROUND = 256  # documents that are made, sorted by length and trained on at a time
TEXT = 0.4  # the share of updates that are of text, not of made documents
TASKS = {"restore": 5, "title": 2, "explain": 2}  # how often a batch of text is of each
CUES = {"restore": texts.RESTORE, "title": texts.TITLE, "explain": texts.EXPLAIN}
WARMUP = 100  # updates
MAX_SOURCE, MAX_TARGET = 512, 128  # tokens; what is longer is left out
SHIFTED = 0.75  # the share of updates in which rows begin at random positions, not at the first
SAVE_SECONDS = 60
VOCABULARY = 4000
WINDOWS = "4,16,all,all"  # of the layers; what is near explains a token best, and is found first
SIZES = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
MODEL = (  # flags of fairseq-train
    *("--task", "long_summarization", "--arch", "poolingformer_demo", "--cpu", "--random-position-offsets"),
    # dense, the fastest for short documents; the first layers see the nearest tokens only
    *("--window-size", WINDOWS, "--pooled-layers", "none", "--global-tokens", "0", "--attention-backend", "reference"),
)


@dataclass(frozen=True)
class Data:
    """The sources of examples.

    Attributes:
        sentences: the prose of made documents.
        texts: of the other tasks.
        is_held_out: whether all this is of the sources that the demo model is not trained on.
    """

    sentences: list[str]
    texts: texts.Texts
    is_held_out: bool

    @classmethod
    def read(cls, documentation: Path | None, is_held_out: bool) -> Data:
        """The held-out items, or the rest."""
        return cls(facts.read_sentences(is_held_out), texts.Texts.read(documentation, is_held_out), is_held_out)

    def maker(self, shape: Shape) -> DocumentMaker:
        """The generator of documents of a shape."""
        return DocumentMaker(self.sentences, self.is_held_out, shape)


@dataclass(frozen=True)
class Pair:
    """Tokens of a source and a target, with ``<s>`` and ``</s>``.

    Attributes:
        source: the document's, or another task's.
        target: the summary's, or another task's.
        places: for each token of the target its place in the source, where it is copied from there, else -1.
    """

    source: list[int]
    target: list[int]
    places: list[int]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output-folder", type=Path, required=True, metavar="DIR")
    parser.add_argument("--documentation", type=Path, metavar="DIR", help="with sources of Python's documentation")
    parser.add_argument("--lr", type=float, default=1.5e-3, help="highest learning rate (default: %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=2048, help="of the documents of a batch, padding included")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of all stages (default: %(default)s)")
    parser.add_argument("--documents", type=int, default=ROUND, help="made for a round (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="of torch; default: torch's own")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="(default: %(default)s)")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="save and stop after so many; the same command resumes"
    )
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    args.output_folder.mkdir(parents=True, exist_ok=True)
    data = Data.read(args.documentation, is_held_out=False)
    print(f"text: {data.texts.description}", flush=True)
    tokenizer = make_tokenizer(args.output_folder, data)
    settings, model = build(args.output_folder)
    train(model.to(args.device), settings, tokenizer, data, args)
    return 0


def make_tokenizer(folder: Path, data: Data) -> Tokenizer:
    """The tokenizer of all tasks' text, and its dictionaries, written where they are missing."""
    if not (folder / "dict.target.txt").is_file():
        records = list(facts.make_records(data.maker(STAGES[3][0]), "vocabulary", 4000, seed=0))
        pairs = [*data.texts.sections, *data.texts.functions]
        pairs += [("", " ".join(source)) for source in data.texts.prose]
        records += [pack(f"text-{number}", text, head) for number, (head, text) in enumerate(pairs)]
        corpus = Corpus("demo_model", {"train": SplitRecords.of_records(records)}, unpack, settings={}, inputs={})
        train_sentencepiece(corpus, VOCABULARY, folder)
        for side in ("source", "target"):
            load_tokenizer(folder).write_dictionary(folder / f"dict.{side}.txt")
    return load_tokenizer(folder)


def build(folder: Path, *flags: str) -> tuple[dict[str, object], nn.Module]:
    """The model's settings and the model, random but for what two functions below set; flags of fairseq-train's."""
    user_dir = str(Path(__file__).resolve().parents[2] / "fairseq_poolingformer")
    args = options.parse_args_and_arch(
        options.get_training_parser(), [str(folder), "--user-dir", user_dir, *MODEL, *flags]
    )
    torch.manual_seed(1)
    model = tasks.setup_task(args).build_model(args)
    start_to_copy(model)
    start_in_order(model.encoder.embed_positions)
    sizes = (f"{side}_{size}" for side in ("encoder", "decoder") for size in SIZES)
    names = ("arch", "task", "max_source_positions", "max_target_positions", *sizes, *DEFAULTS)
    return {name: getattr(args, name) for name in names if name != "attention_backend"}, model


@torch.no_grad()
def start_to_copy(model: nn.Module) -> None:
    """Make every cross-attention copy what it attends to: W_v = W_o = I, so that W_o W_v x = x.

    With tied embeddings, attending to a token then makes that token more probable from the first update on, which
    rewards attending to the right one. From random projections the attention has nothing to gain, and stays even.
    """
    for layer in model.decoder.layers:
        for projection in (layer.encoder_attn.v_proj, layer.encoder_attn.out_proj):
            nn.init.eye_(projection.weight)
            nn.init.zeros_(projection.bias)


@torch.no_grad()
def start_in_order(positions: nn.Embedding) -> None:
    """Initialize positions as sinusoids of the tokens' size.

    The token before is then one rotation away for every token alike, which attention learns at once. Between random
    positions it would learn each step by itself.
    """
    rows, dim = positions.weight.shape
    table = SinusoidalPositionalEmbedding.get_embedding(rows, dim)
    positions.weight.copy_(table * (2 / dim) ** 0.5)  # sinusoids have a mean square of a half


def make_pair(document: FactDocument, tokenizer: Tokenizer) -> Pair:
    """The tokens of a document and of its summary, and where in the document the values in the summary are."""
    source, source_starts, source_ends = tokenizer.encode_with_offsets(document.text)
    target, target_starts, target_ends = tokenizer.encode_with_offsets(document.summary)
    places = np.full(len(target) + 2, -1)
    for field, value in document.facts.items():
        if document.text.count(document.stated[field]) != 1:
            continue  # gossip says the same
        here = document.text.index(document.stated[field]) + document.stated[field].index(value)
        sentence = SUMMARIES[field].format(value)
        there = document.summary.index(sentence) + sentence.index(value)
        copied = np.flatnonzero((source_starts >= here) & (source_ends <= here + len(value)))
        copies = np.flatnonzero((target_starts >= there) & (target_ends <= there + len(value)))
        if np.array_equal(source[copied], target[copies]):
            places[copies + 1] = copied + 1  # after <s>
    return Pair([BOS, *source.tolist(), EOS], [BOS, *target.tolist(), EOS], places.tolist())


def make_text_pair(task: str, data: texts.Texts, tokenizer: Tokenizer, rng: Random) -> Pair:
    """An example of a task of texts.py."""
    if task == "restore":
        target = texts.draw_passage(data.prose, tokenizer, rng)
        left, places = texts.leave_out(target, rng)
        cue = tokenizer.encode(CUES[task]).tolist()
        places = [place + 1 + len(cue) if place >= 0 else -1 for place in places]  # after <s> and the cue
        return Pair([BOS, *cue, *left, EOS], [BOS, *target.tolist(), EOS], [-1, *places, -1])
    return example_pair(task, *rng.choice(data.sections if task == "title" else data.functions), tokenizer)


def example_pair(task: str, target: str, text: str, tokenizer: Tokenizer) -> Pair:
    """A text, cut to the longest source, and what is to be said of it."""
    source = tokenizer.encode(texts.instructed(CUES[task], text)).tolist()[: MAX_SOURCE - 2]
    tokens = tokenizer.encode(target).tolist()
    return Pair([BOS, *source, EOS], [BOS, *tokens, EOS], [-1] * (len(tokens) + 2))


def make_batches(pairs: Iterable[Pair], max_tokens: int) -> list[list[Pair]]:
    """Pairs in batches of similar lengths, the shortest first."""
    pairs = [pair for pair in pairs if len(pair.source) <= MAX_SOURCE and len(pair.target) <= MAX_TARGET]
    batches: list[list[Pair]] = [[]]
    for pair in sorted(pairs, key=lambda pair: len(pair.source)):
        if batches[-1] and (len(batches[-1]) + 1) * len(pair.source) > max_tokens:
            batches.append([])
        batches[-1].append(pair)
    return batches


def make_round(
    data: Data, stage: int, tokenizer: Tokenizer, rng: Random, documents: int, max_tokens: int
) -> list[tuple[str, list[Pair]]]:
    """A round's batches with their tasks, in random order."""
    makers = [data.maker(shape) for shape, _ in STAGES[: stage + 1]]
    drawn = [rng.choice(makers) if rng.random() < 0.5 else makers[-1] for _ in range(documents)]
    pairs = (make_pair(maker.make(rng), tokenizer) for maker in drawn)
    batches = [("facts", batch) for batch in make_batches(pairs, max_tokens)]
    wanted = rng.choices(*zip(*data.texts.tasks(TASKS).items(), strict=True), k=round(len(batches) * TEXT / (1 - TEXT)))
    for task in sorted(set(wanted)):
        count = wanted.count(task)
        pairs = []  # one batch more than wanted, since the last may be a small one
        while len(made := make_batches(pairs, max_tokens)) <= count:
            pairs += [make_text_pair(task, data.texts, tokenizer, rng) for _ in range(8)]
        batches += [(task, batch) for batch in rng.sample(made, count)]
    rng.shuffle(batches)
    return batches


def pad(rows: list[list[int]], value: int = PAD) -> Tensor:
    """Rows of different lengths as one tensor."""
    return nn.utils.rnn.pad_sequence(list(map(torch.tensor, rows)), batch_first=True, padding_value=value)


def tensors(batch: list[Pair], device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(B, S) the sources, (B, T) what the decoder reads as in task long_summarization, the targets and their places."""
    source, target = pad([pair.source for pair in batch]), pad([pair.target for pair in batch])
    previous = pad([[EOS, *pair.target[:-1]] for pair in batch])
    places = pad([pair.places for pair in batch], -1)
    return source.to(device), previous.to(device), target.to(device), places.to(device)


class Pointer:
    """How well the last cross-attention points at the places that a summary is copied from.

    The operator does not return attention weights, so this keeps the queries and keys of the last call and computes
    them.
    """

    def __init__(self, model: nn.Module) -> None:
        self.attention = model.decoder.layers[-1].encoder_attn
        self.projected: dict[str, Tensor] = {}
        for name in ("q_proj", "k_proj"):
            getattr(self.attention, name).register_forward_hook(functools.partial(self._keep, name))

    def _keep(self, name: str, module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        self.projected[name] = output

    def loss(self, padding: Tensor, places: Tensor) -> Tensor:
        """The cross-entropy between the weights of each head and the places, a scalar."""
        heads, dim = self.attention.num_heads, self.attention.head_dim
        query, key = (x.float().unflatten(-1, (heads, dim)) for x in map(self.projected.pop, ("q_proj", "k_proj")))
        scores = torch.einsum("tbhd,sbhd->bhts", query, key) * dim**-0.5
        scores = scores.masked_fill(padding[:, None, None], -math.inf)
        places = places[:, None].expand(-1, heads, -1)
        if not places.ge(0).any():
            return scores.new_zeros(())
        return F.cross_entropy(scores.flatten(0, 2), places.flatten(), ignore_index=-1)


def stages(rounds: int) -> list[int]:
    """The stage of each round."""
    ends = np.cumsum([share for _, share in STAGES]) * rounds
    return np.searchsorted(ends, np.arange(rounds) + 0.5).clip(max=len(STAGES) - 1).tolist()


def train(model: nn.Module, settings: dict, tokenizer: Tokenizer, data: Data, args) -> None:
    """All stages, from the last checkpoint on; the result is written at each checkpoint."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    checkpoint = args.output_folder / "checkpoint.pt"
    done = {"rounds": 0, "updates": 0, "tokens": 0, "seconds": 0.0}
    if checkpoint.is_file():
        saved = torch.load(checkpoint, weights_only=True, map_location=args.device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["done"]
    pointer, positions = Pointer(model), model.encoder.embed_positions
    end, saved_at = time.monotonic() + 60 * args.minutes, time.monotonic()
    for number, stage in list(enumerate(stages(args.rounds)))[done["rounds"] :]:
        began, rng = time.process_time(), Random(f"demo model {number}")
        losses: dict[str, list[float]] = {"place": []}
        for task, batch in make_round(data, stage, tokenizer, rng, args.documents, args.max_tokens):
            done["updates"] += 1
            lr = args.lr * min(1.0, done["updates"] / WARMUP) * max(0.05, 1 - number / args.rounds)
            positions.random_offsets = rng.random() < SHIFTED
            bits, places = update(model, pointer, optimizer, batch, lr)
            losses.setdefault(task, []).append(bits)
            losses["place"] += [places] if task == "facts" else []
            done["tokens"] += sum(len(pair.source) for pair in batch)
        done["rounds"], done["seconds"] = number + 1, done["seconds"] + time.process_time() - began
        counts = " ".join(f"{key} {value:.0f}" for key, value in done.items())
        means = ", ".join(f"{name} {sum(values) / len(values):.3f}" for name, values in losses.items())
        print(f"{counts}: bits a token of {means}", flush=True)
        stop = done["rounds"] == args.rounds or time.monotonic() >= end
        if stop or time.monotonic() >= saved_at + SAVE_SECONDS:
            saved_at = time.monotonic()
            with atomic_write(checkpoint) as path:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "done": done}, path)
            write_demo_model(args.output_folder, settings, model.state_dict())
        if stop:
            return


def update(
    model: nn.Module, pointer: Pointer, optimizer: torch.optim.Optimizer, batch: list[Pair], lr: float
) -> tuple[float, float]:
    """One step; the losses in bits a token of the summary and bits a place."""
    for group in optimizer.param_groups:
        group["lr"] = lr
    device = next(model.parameters()).device
    source, previous, target, places = tensors(batch, device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        logits, _ = model(source, None, previous)
    tokens = F.cross_entropy(logits.float().flatten(0, 1), target.flatten(), ignore_index=PAD)
    pointed = pointer.loss(source.eq(PAD), places)
    optimizer.zero_grad()
    (tokens + pointed).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(tokens.detach()) / math.log(2), float(pointed.detach()) / math.log(2)


if __name__ == "__main__":
    sys.exit(main())
