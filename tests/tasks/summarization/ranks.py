"""What each of a few gloo processes computes of divided documents for test_ranks.py; each writes its results."""

import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as distributed

from fairseq_poolingformer.attention.sharding import GroupRanks
from fairseq_poolingformer.models.division import Division, divide
from tests.models.test_bart import PAD, sentences, shifted
from tests.models.test_decoder import LENGTHS, build_telling
from tests.models.tiny_bart import SIZES, parse

SMOOTHED = ("--label-smoothing", "0.1", "--report-accuracy")
DROPOUT = ("--dropout", "0.2", "--attention-dropout", "0.2", "--activation-dropout", "0.2")


@dataclass(frozen=True)
class Case:
    """A batch of documents and summaries of some lengths, and flags of the training."""

    flags: tuple[str, ...] = ()
    lengths: tuple[int, ...] = (37, 21)
    summaries: tuple[int, ...] = (11, 8)
    criterion: str = "linear_cross_entropy"


CASES = {
    "smoothed": Case(SMOOTHED, lengths=(48, 21)),
    "a longer source": Case(SMOOTHED, lengths=(144, 90)),
    "a rank of padding alone": Case(lengths=(37, 5)),
    "fewer tokens than ranks": Case(summaries=(2, 2)),
    "fairseq's criterion": Case(SMOOTHED, criterion="label_smoothed_cross_entropy"),
    "sentences": Case(("--sentence-avg",), criterion="cross_entropy"),
    "dropout": Case(DROPOUT),
    "dropout, recomputed": Case((*DROPOUT, "--checkpoint-activations")),
}
BEAMS = 1, 3


class CountingRanks(GroupRanks):
    """Ranks of a group, which count the bytes that they send."""

    sent = 0

    def swap(self, sent, sizes):
        self.sent += sum(len(x) for x in sent)
        return super().swap(sent, sizes)


def step(case, data, ranks=None, divided=True):
    """Loss and sample size of a step of training, logged numbers, gradients, and bytes sent."""
    flags = (
        "--dropout",
        "0",
        "--activation-fn",
        "relu",
        "--criterion",
        case.criterion,
        *case.flags,
    )  # gelu is in float32
    task, model = build_telling(data, *flags, noise=0.1)
    criterion = task.build_criterion(parse(data, *SIZES, *flags))
    if ranks is not None:
        task.divide(model, criterion, ranks)
    elif divided:
        divide(model, Division())
    target, source = sentences(case.summaries), sentences(case.lengths)
    inputs = {"src_tokens": source, "src_lengths": (source != PAD).sum(1), "prev_output_tokens": shifted(target)}
    sample = {"target": target, "ntokens": int(target.ne(PAD).sum()), "net_input": inputs}
    torch.manual_seed(5)
    optimizer = SimpleNamespace(backward=lambda loss: loss.backward())
    loss, sample_size, logged = task.train_step(sample, model, criterion, optimizer, 1)
    result = {"loss": loss.detach(), "sample_size": sample_size, "sent": ranks and ranks.sent}
    result |= {name: p.grad for name, p in model.named_parameters()}
    validated = task.valid_step(sample, model, criterion)[2]
    return {**result, **logged, **{f"valid {name}": value for name, value in validated.items()}}


def summaries(data, beam, ranks=None):
    """Hypotheses of a few documents, with their scores."""
    task, model = build_telling(data)
    if ranks is not None:
        task.divide(model, None, ranks)
    generator = task.build_generator([model], SimpleNamespace(beam=beam, max_len_b=24))
    source = sentences(LENGTHS)
    sample = {"net_input": {"src_tokens": source, "src_lengths": (source != PAD).sum(1)}}
    return [
        [(h["tokens"].tolist(), float(h["score"])) for h in row]
        for row in task.inference_step(generator, [model], sample)
    ]


def main(rank, size, folder, data):
    torch.set_num_threads(1)
    rank, size = int(rank), int(size)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/init", rank=rank, world_size=size)
    groups = {n: distributed.new_group(list(range(n))) for n in range(1, size + 1)}
    for number, group in groups.items():
        if rank < number:
            for name, case in CASES.items():
                torch.save(step(case, data, CountingRanks(group)), Path(folder, f"{name} {number} {rank}.pt"))
            found = [summaries(data, beam, GroupRanks(group)) for beam in BEAMS]
            torch.save(found, Path(folder, f"summaries {number} {rank}.pt"))
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
