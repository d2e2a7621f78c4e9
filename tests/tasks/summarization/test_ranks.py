"""Processes share documents, in groups of two and three: training and summaries are those of one process."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as distributed

from fairseq_poolingformer.attention.sharding import GroupRanks
from fairseq_poolingformer.models.context_parallel import ContextParallel, divide
from tests.models.test_bart import PAD, sentences, shifted
from tests.models.test_decoder import LENGTHS, build_telling
from tests.models.tiny_bart import SIZES, parse, write_data_folder
from tests.patches.helpers import in_processes

SIZES_OF_GROUPS = 2, 3
SIZE = max(SIZES_OF_GROUPS)
SMOOTHED = ("--label-smoothing", "0.1", "--report-accuracy")
DROPOUT = ("--dropout", "0.2", "--attention-dropout", "0.2", "--activation-dropout", "0.2")


@dataclass(frozen=True)
class Case:
    """A batch of documents and summaries of some lengths, and flags of the training."""

    flags: tuple[str, ...] = ()
    lengths: tuple[int, ...] = (37, 21)
    summaries: tuple[int, ...] = (11, 8)
    criterion: str = "linear_cross_entropy"
    another: bool = False
    questions: tuple[int, ...] | None = None
    dtype: torch.dtype = torch.float64


class Another(torch.nn.Module):
    """A criterion that knows nothing of shares."""

    def forward(self, model, sample):
        loss = model(**sample["net_input"])[0].square().mean()
        return loss, sample["ntokens"], {"loss": loss.detach(), "ntokens": sample["ntokens"]}


CASES = {
    "smoothed": Case(SMOOTHED, lengths=(48, 21)),
    "a longer source": Case(SMOOTHED, lengths=(144, 90)),
    "a rank of padding alone": Case(lengths=(37, 5)),
    "fewer tokens than ranks": Case(summaries=(2, 2)),
    "fairseq's criterion": Case(SMOOTHED, criterion="label_smoothed_cross_entropy"),
    "sentences": Case(("--sentence-avg",), criterion="cross_entropy"),
    "another package's criterion": Case(another=True),
    "dropout": Case(DROPOUT),
    "dropout, recomputed": Case((*DROPOUT, "--checkpoint-activations")),
    "questions": Case(questions=(9, 4)),
    "questions, dropout": Case(DROPOUT, questions=(3, 25)),
    "bfloat16": Case(dtype=torch.bfloat16),
}
BEAMS = 1, 3
QUESTIONS = 12, 3, 1, 25, 7, 2, 9


class CountingRanks(GroupRanks):
    """Ranks of a group, which count the bytes that they send."""

    sent = 0

    def swap(self, sent, sizes):
        self.sent += sum(len(x) for x in sent)
        return super().swap(sent, sizes)


def of_questions(source, lengths):
    """The mask of documents that begin with questions."""
    return torch.arange(source.size(1)) < torch.tensor(lengths)[:, None]


def step(case, data, ranks=None, divided=True):
    """Loss and sample size of a step of training, logged numbers, gradients, and bytes sent."""
    # gelu is in float32
    flags = ("--dropout", "0", "--activation-fn", "relu", "--criterion", case.criterion, *case.flags)
    task, model = build_telling(data, *flags, noise=0.1)
    criterion = task.build_criterion(parse(data, *SIZES, *flags))
    criterion = Another() if case.another else criterion
    model.to(case.dtype)
    if ranks is not None:
        task.divide(model, criterion, ranks)
    elif divided:
        divide(model, ContextParallel())
    target, source = sentences(case.summaries), sentences(case.lengths)
    inputs = {"src_tokens": source, "src_lengths": (source != PAD).sum(1), "prev_output_tokens": shifted(target)}
    if case.questions is not None:
        inputs["global_mask"] = of_questions(source, case.questions)
    sample = {"target": target, "ntokens": int(target.ne(PAD).sum()), "net_input": inputs}
    torch.manual_seed(5)
    optimizer = SimpleNamespace(backward=lambda loss: loss.backward())
    loss, sample_size, logged = task.train_step(sample, model, criterion, optimizer, 1)
    result = {"loss": loss.detach(), "sample_size": sample_size, "sent": ranks and ranks.sent}
    result |= {name: p.grad for name, p in model.named_parameters()}
    validated = task.valid_step(sample, model, criterion)[2]
    return {**result, **logged, **{f"valid {name}": value for name, value in validated.items()}}


def summaries(data, beam, ranks=None):
    """Hypotheses of a few documents that begin with questions, with their scores."""
    task, model = build_telling(data)
    if ranks is not None:
        task.divide(model, None, ranks)
    generator = task.build_generator([model], SimpleNamespace(beam=beam, max_len_b=24))
    source = sentences(LENGTHS)
    mask = of_questions(source, QUESTIONS[: len(source)])
    sample = {"net_input": {"src_tokens": source, "src_lengths": (source != PAD).sum(1), "global_mask": mask}}
    return [
        [(h["tokens"].tolist(), float(h["score"])) for h in row]
        for row in task.inference_step(generator, [model], sample)
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data_folder(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, data):
    """With the results of all processes."""
    folder = tmp_path_factory.mktemp("processes")

    def process(rank, meeting):
        distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=SIZE)
        for size in SIZES_OF_GROUPS:
            group = distributed.new_group(list(range(size)))
            if rank < size:
                for name, case in CASES.items():
                    torch.save(step(case, data, CountingRanks(group)), folder / f"{name} {size} {rank}.pt")
                found = [summaries(data, beam, GroupRanks(group)) for beam in BEAMS]
                torch.save(found, folder / f"summaries {size} {rank}.pt")
        distributed.destroy_process_group()

    in_processes(SIZE, process)
    return folder


@pytest.mark.parametrize("name", CASES)
def test_a_step_of_training_is_that_of_one_process(folder, data, name):
    case = CASES[name]
    # dropout is decided by pairs, as in a shard of one process
    expected = step(case, data, divided="dropout" in name)
    del expected["sent"]
    tolerance = 1e-12 if case.criterion == "linear_cross_entropy" else 1e-6  # fairseq's are in float32
    tolerance = 0.3 if case.dtype == torch.bfloat16 else tolerance
    for size in SIZES_OF_GROUPS:
        results = [torch.load(folder / f"{name} {size} {rank}.pt") for rank in range(size)]
        assert all(result.pop("sent") for result in results)
        assert all(result.keys() == expected.keys() for result in results)
        for key, value in expected.items():
            total = sum(torch.as_tensor(result[key]) for result in results)
            value = torch.as_tensor(value)
            error = (total - value).abs().max() / value.abs().max().clamp(min=0.1)
            assert error <= tolerance, f"{key}: {error}"


def test_bytes_of_a_step_do_not_depend_on_the_length_of_documents(folder):
    for size in SIZES_OF_GROUPS:
        for rank in range(size):
            short, long = (torch.load(folder / f"{name} {size} {rank}.pt") for name in ("smoothed", "a longer source"))
            assert short["sent"] == long["sent"]


@pytest.mark.parametrize("number", range(len(BEAMS)))
def test_all_ranks_write_the_summaries_of_one_process(folder, data, number):
    expected = summaries(data, BEAMS[number])
    assert len({tuple(row[0][0]) for row in expected}) > 4, "they depend on the documents"
    for size in SIZES_OF_GROUPS:
        for rank in range(size):
            found = torch.load(folder / f"summaries {size} {rank}.pt")[number]
            for row, wanted in zip(found, expected, strict=True):
                assert [tokens for tokens, _ in row] == [tokens for tokens, _ in wanted]
                assert [score for _, score in row] == pytest.approx([score for _, score in wanted], abs=1e-6)
