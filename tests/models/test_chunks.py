"""Models whose documents go through in chunks, in arrays off the device, compute what they compute of whole ones."""

import copy
from itertools import pairwise

import pytest
import torch
from fairseq import options
from fairseq.distributed import utils as distributed_utils
from fairseq.sequence_generator import SequenceGenerator
from fairseq_cli.generate import main as generate_main
from fairseq_cli.train import main as train_main
from torch import nn

from fairseq_poolingformer.attention.sharding.places import Files
from fairseq_poolingformer.checkpoint_reader.checkpoints import load
from fairseq_poolingformer.models.division import Division, divide
from fairseq_poolingformer.tasks.summarization.task import LongSummarizationTask
from tests.attention.sharding.ranks import in_threads
from tests.models.test_bart import sentences
from tests.models.tiny_bart import SIZES, USER_DIR, build, parse, write_data_folder
from tests.patches.helpers import parse as command

LEVELS = ("--window-size", "4", "--pooled-window-size", "9", "--pooled-layers", "1-2", "--global-tokens", "1")
NO_DROPOUT = ("--dropout", "0", "--attention-dropout", "0")
DROPOUT = ("--dropout", "0.2", "--attention-dropout", "0.1", "--activation-dropout", "0.1")
LENGTHS = [41, 23]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_data_folder(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


def make(folder, *flags, arch="poolingformer_bart_tiny"):
    task, model = build(folder, *SIZES, *LEVELS, *flags, arch=arch)
    for name, parameter in model.named_parameters():
        if "pool_weight" in name:
            nn.init.normal_(parameter)
    return task, model.double()


def outputs(model, division, global_mask=None):
    """The decoder's features for a batch, and the gradients of all parameters."""
    model = copy.deepcopy(model)
    divide(model, division)
    source, target = sentences(LENGTHS), sentences([9, 4])
    torch.manual_seed(3)
    encoded = model.encoder(source, global_mask=global_mask)
    features, _ = model.decoder(target, encoded, features_only=True)
    weights = torch.randn(features.shape, generator=torch.Generator().manual_seed(5)).double()
    (features * weights).sum().backward()
    return features.detach(), {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_same(found, expected, tolerance=1e-12):
    torch.testing.assert_close(found[0], expected[0], rtol=tolerance, atol=tolerance)
    for name, gradient in expected[1].items():
        if gradient is None:
            assert found[1][name] is None
        else:
            torch.testing.assert_close(found[1][name], gradient, rtol=tolerance, atol=10 * tolerance, msg=name)


@pytest.mark.parametrize(
    "flags",
    [
        ("--pool-type", "ldconv"),
        ("--pool-type", "max", "--pool-mix", "--encoder-normalize-before"),
        ("--pool-type", "mean", "--checkpoint-activations"),
        ("--pool-type", "mean-ldconv", "--pool-share-weights", "--separate-global-projections"),
        ("--relative-attention", "c2p,p2c"),
    ],
    ids=lambda flags: " ".join(flags),
)
def test_summaries_in_chunks(folder, flags):
    _, model = make(folder, *NO_DROPOUT, *flags)
    everywhere = torch.rand(2, LENGTHS[0], generator=torch.Generator().manual_seed(1)) < 0.2
    for global_mask in (None, everywhere):
        expected = outputs(model, None, global_mask)
        assert_same(outputs(model, Division(None, 7), global_mask), expected)


def test_dropout_is_that_of_the_whole(folder):
    _, model = make(folder, *DROPOUT, "--pool-mix")
    model.train()
    expected = outputs(model, Division())
    assert_same(outputs(model, Division(None, 11)), expected)
    assert not torch.allclose(outputs(model.eval(), None)[0], expected[0])


@pytest.mark.parametrize("flags", [(), ("--pooled-layers", "none", "--encoder-normalize-before")])
def test_chunks_of_an_encoder_are_its_parts_in_processes_bit_for_bit(folder, flags):
    _, model = make(folder, *NO_DROPOUT, "--global-tokens", "0", *flags)
    tokens = sentences(LENGTHS)

    def features(ranks, chunk_tokens=None):
        encoder = copy.deepcopy(model.encoder)
        divide(encoder, Division(ranks, chunk_tokens))
        return encoder(tokens)["encoder_out"][0].detach().clone()

    parts = in_threads(3, features)  # 13, 14 and 14 tokens
    ends = [tokens.size(1) * rank // 3 for rank in range(4)]
    in_time = features(None, [stop - start for start, stop in pairwise(ends)])
    assert [len(part) for part in parts] == [13, 14, 14]
    assert torch.equal(torch.cat(parts), in_time)


def test_beam_search_in_chunks(folder):
    task, model = make(folder)
    divided = copy.deepcopy(model)
    divide(divided, Division(None, 7))
    source = sentences([41, 23, 30])
    sample = {"net_input": {"src_tokens": source, "src_lengths": (source != 1).sum(1)}}
    found = []
    for each in (model, divided):
        search = SequenceGenerator([each], task.target_dictionary, beam_size=3, max_len_a=0, max_len_b=8)
        found.append([[(h["tokens"].tolist(), float(h["score"])) for h in row] for row in search.generate([], sample)])
    for rows in zip(*found, strict=True):
        assert [tokens for tokens, _ in rows[0]] == [tokens for tokens, _ in rows[1]]
        assert [score for _, score in rows[1]] == pytest.approx([score for _, score in rows[0]], abs=1e-6)


def arrays(model, num_tokens, training, monkeypatch):
    """The most arrays of all tokens at a time, in the size of the encoder's output."""
    made, init = [], Files.__init__
    monkeypatch.setattr(Files, "__init__", lambda self, *a: (init(self, *a), made.append(self))[0])
    divide(model, Division(None, 16))
    tokens = sentences([num_tokens])
    with torch.set_grad_enabled(training):
        out = model.encoder(tokens)["encoder_out"][0]
        if training:
            out.sum().backward()
    model.zero_grad()
    (files,) = made
    size = out.numel() * out.element_size()
    del out
    assert not list(files._maps), "the files end with the step"
    return files.most / size


def test_arrays_of_training_and_of_inference(folder, monkeypatch):
    """Inference has the input and Y, which becomes the output, and pooled keys and values, half as large."""
    _, model = make(folder, "--encoder-layers", "6", "--pooled-layers", "3-5", *NO_DROPOUT)
    model = model.float()
    assert arrays(model, 257, False, monkeypatch) < 2.8  # stride 4: 65 pools
    monkeypatch.undo()
    kept = arrays(model, 257, True, monkeypatch)
    assert 13 < kept < 18  # of each layer the input and Y, of three the pooled ones; gradients of one layer
    monkeypatch.undo()
    _, model = make(folder, "--encoder-layers", "6", "--pooled-layers", "3-5", *NO_DROPOUT, "--checkpoint-activations")
    assert arrays(model.float(), 257, True, monkeypatch) < kept - 3


def test_the_flag_of_training_and_generation(folder):
    """And of old checkpoints' tasks, whose settings have none."""
    task, model = make(folder, "--chunk-tokens", "7")
    assert model.encoder.division == Division(None, 7)
    del task.cfg.chunk_tokens
    assert task.build_model(parse(folder, *SIZES)).encoder.division is None
    with pytest.raises(ValueError, match="cannot be divided among processes or chunks"):
        build(folder, *SIZES, "--chunk-tokens", "7", arch="bart_base")


def test_training_and_generating(tmp_path, monkeypatch):
    """The weights after three updates, and hypotheses of a checkpoint, whichever of both had chunks."""
    words = torch.Generator().manual_seed(0)
    pairs = [[torch.randint(4, 34, (n,), generator=words).tolist() for n in (20 + k, 5)] for k in range(6)]
    data = write_data_folder(tmp_path / "data", splits={"train": pairs, "valid": pairs[:2], "test": pairs[:3]})
    few = ["--user-dir", USER_DIR, "--task", "long_summarization", "--cpu", "--num-workers", 0, "--no-progress-bar"]
    training = ["--optimizer", "adam", "--adam-eps", 1e-4, "--lr", 0.01, "--max-update", 3, "--batch-size", 2]
    training += ["--criterion", "cross_entropy", "--seed", 7, "--arch", "poolingformer_bart_tiny", *SIZES, *LEVELS]
    saved, found = {}, {}
    for chunks in (0, 7):
        place = ["--save-dir", tmp_path / f"run{chunks}", "--chunk-tokens", chunks]
        arguments = [data, *few, *training, *NO_DROPOUT, *place]
        distributed_utils.call_main(command(options.get_training_parser(), arguments), train_main)
        saved[chunks] = tmp_path / f"run{chunks}" / "checkpoint_last.pt"
    weights = [load(path)["model"] for path in saved.values()]
    for name, expected in weights[0].items():
        torch.testing.assert_close(weights[1][name], expected, atol=2e-5, rtol=1e-4, msg=name)
    monkeypatch.setattr(LongSummarizationTask, "build_bpe", lambda *_: None)  # the folder has no tokenizer
    for chunks in (0, 7):
        arguments = [data, *few, "--path", saved[0], "--results-path", tmp_path / f"out{chunks}", "--beam", 2]
        arguments += ["--max-len-b", 5, "--chunk-tokens", chunks]
        generate_main(command(options.get_generation_parser(), arguments))
        lines = (tmp_path / f"out{chunks}" / "generate-test.txt").read_text().splitlines()
        found[chunks] = [line.split("\t")[2] for line in lines if line.startswith("H-")]
    assert found[0] == found[7]
    assert len(found[0]) == 3


def test_documents_longer_than_the_positions_are_refused_in_words(folder):
    _, model = make(folder, "--max-source-positions", "30")
    divide(model, Division(None, 7))
    with pytest.raises(ValueError, match="a row has 41 tokens, the model takes 30"):
        model.encoder(sentences(LENGTHS))
