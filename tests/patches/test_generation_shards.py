"""fairseq-generate divides its work among shards and among the processes of torchrun."""

import re

import pytest
import torch
from fairseq import options
from fairseq.sequence_generator import SequenceGenerator

from fairseq_poolingformer.patches.generation_shards import checksum
from fairseq_poolingformer.patches.processes import TORCHRUN_VARIABLES
from tests import lab
from tests.patches.helpers import EXAMPLES, PACKAGE, SHORT, TRANSLATION, parse, run, train

RECORDS = re.compile(r"^[STHDP]-\d+\t.*", re.MULTILINE)
BATCHES = ["--batch-size", "2", "--beam", "2", "--nbest", "2", "--scoring", "sacrebleu", "--user-dir", PACKAGE]


@pytest.fixture(scope="module")
def checkpoint(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    train(corpus, folder, "--max-update", 3)
    return folder / "checkpoint_last.pt"


def arguments(corpus, checkpoint, *extra):
    return [corpus, *TRANSLATION, "--path", checkpoint, *SHORT, *BATCHES, *extra]


@pytest.fixture(scope="module")
def shard(corpus, checkpoint, tmp_path_factory):
    def generate(*extra):
        from fairseq_cli.generate import main

        folder = tmp_path_factory.mktemp("out")
        words = arguments(corpus, checkpoint, "--results-path", folder, *extra)
        main(parse(options.get_generation_parser(), words))
        return (folder / "generate-test.txt").read_text()

    return generate


@pytest.fixture(scope="module")
def whole(shard):
    text = shard()
    assert len(re.findall(r"^S-", text, re.MULTILINE)) == EXAMPLES["test"]
    return text


@pytest.mark.parametrize("shards", [1, 2, 3, 8])
def test_shards_generate_every_input_once(shard, whole, shards):
    """Eight shards of six batches leave two of them with nothing to do."""
    outputs = [shard("--num-shards", shards, "--shard-id", number) for number in range(shards)]
    records = [RECORDS.findall(output) for output in outputs]
    assert sorted(line for lines in records for line in lines) == sorted(RECORDS.findall(whole))
    assert max(map(len, records)) <= -(-6 // shards) * 2 * 8, "two inputs a batch, eight lines an input"
    for number, output in enumerate(outputs):
        share = "has no examples" if number >= 6 else "alone"
        assert (f"shard {number} of {shards} {share}" in output) == (shards > 1)
        assert output.count("Generate test with beam=2") == 1


@pytest.mark.full
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_torchrun_prints_what_one_process_prints(corpus, checkpoint, whole, processes, tmp_path):
    """Every hypothesis once, in the same order with the same scores, and one result over all."""
    torchrun = ("torch.distributed.run", f"--nproc_per_node={processes}", "--standalone", "-m")
    done = run(*torchrun, "fairseq_cli.generate", *arguments(corpus, checkpoint), cwd=tmp_path)
    assert RECORDS.findall(done.stdout) == RECORDS.findall(whole)
    (result,) = re.findall("^Generate test.*", done.stdout, re.MULTILINE)
    assert [result] == re.findall("^Generate test.*", whole, re.MULTILINE)


class Store(dict):
    """The part of torch's store that is used, for processes that run one after another."""

    set, delete_key, get = dict.__setitem__, dict.__delitem__, dict.__getitem__

    def wait(self, keys, timeout):
        if not self.keys() >= set(keys):
            raise torch.distributed.DistStoreError("wait timeout")


@pytest.fixture
def process(monkeypatch, shard):
    """Generate as one process of three would, with a store that outlives it."""
    store = Store()
    for name in TORCHRUN_VARIABLES:
        monkeypatch.setenv(name, "0")

    def generate(rank, *extra):
        monkeypatch.setattr("torch.distributed.rendezvous", lambda url: iter([(store, rank, 3)]))
        return shard(*extra)

    return generate, store


def test_processes_do_their_share_only_and_clear_the_store(process, shard, monkeypatch):
    """A shard may have several processes of its own: twelve inputs, one a batch, in two shards of three processes."""
    generate, store = process
    generated, original = [], SequenceGenerator.generate

    def counted(self, models, sample, **named):
        generated[-1] += sample["id"].tolist()
        return original(self, models, sample, **named)

    monkeypatch.setattr(SequenceGenerator, "generate", counted)
    settings = ["--batch-size", 1, "--num-shards", 2, "--shard-id", 1]
    for rank in (1, 2):
        generated.append([])
        with pytest.raises(FileNotFoundError):  # it leaves the results file to process 0
            generate(rank, *settings)
    assert len(store) == 4
    generated.append([])
    output = generate(0, *settings)
    assert not store
    assert [len(share) for share in generated] == [2, 2, 2]
    assert len({number for share in generated for number in share}) == 6
    for variable in TORCHRUN_VARIABLES:
        monkeypatch.delenv(variable)
    assert RECORDS.findall(output) == RECORDS.findall(shard(*settings))


def test_a_process_that_delivers_nothing_or_something_else_is_named(process):
    generate, _ = process
    with pytest.raises(TimeoutError, match="process 1 has not generated batch 1 within 2:00:00"):
        generate(0)
    for rank in (1, 2):
        with pytest.raises(FileNotFoundError):
            generate(rank, "--batch-size", 3)
    with pytest.raises(ValueError, match="batch 1 of process 1 has other documents than here"):
        generate(0)


def test_more_processes_than_gpus_are_refused(process, monkeypatch):
    from fairseq_cli.generate import main

    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(ValueError, match="1 GPUs are visible"):
        main(parse(options.get_generation_parser(), ["data", *TRANSLATION, "--path", "model.pt"]))


def test_the_output_names_its_checkpoint_by_a_checksum(tmp_path, whole):
    """In the plugin's tasks alone, on a line of no record; the same of a copy, another of another checkpoint."""
    flags = [*lab.SUMMARIES, "--cpu", "--batch-size", 2, "--beam", 1, "--max-len-b", 3, "--results-path", tmp_path]
    lab.here("fairseq_cli.generate", lab.summaries(), *flags, "--path", lab.bart())
    first = (tmp_path / "generate-test.txt").read_text().splitlines()[0]
    assert first == f"Checkpoint {lab.bart()}, checksum {checksum(str(lab.bart()))}"
    assert "Checkpoint" not in whole
    copy = lab.copy(lab.bart(), tmp_path / "copy.pt")
    torch.save(torch.load(copy, weights_only=False) | {"more": torch.ones(1)}, tmp_path / "other.pt")
    torch.save({"model": torch.ones(1)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    sums = [checksum(str(path)) for path in (lab.bart(), copy, tmp_path / "other.pt", tmp_path / "old.pt")]
    assert sums[0] == sums[1]
    assert len(set(sums)) == 3
    assert all(re.fullmatch("[0-9a-f]{16}", text) for text in sums)
