import logging
import math

import numpy as np
import pytest
import torch
from fairseq.criterions.masked_lm import MaskedLmLoss
from fairseq.logging import metrics

from fairseq_poolingformer.tasks.masked_lm.task import LongMaskedLMCriterion
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from tests import lab
from tests.tasks.masked_lm.mlm_folder import random_texts, write_folder

LENGTH = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_folder(folder, {"train": random_texts(60, 60), "valid": random_texts(9, 60, seed=1)})
    return folder


def build(folder, *flags, arch="poolingformer_roberta_tiny"):
    sizes = ("--max-positions", LENGTH, "--seed", 3)
    return lab.task(folder, "long_masked_lm", arch, *sizes, *flags, criterion="long_masked_lm")


def iterator(folder, epoch, *flags, shard=0, shards=1, num_workers=0):
    """The batches of an epoch, as fairseq's trainer asks for them."""
    _, task = build(folder, *flags)
    task.load_dataset("train", epoch=epoch)
    arguments = {"max_tokens": 200, "max_positions": task.max_positions(), "seed": 3, "num_workers": num_workers}
    return task.get_batch_iterator(task.dataset("train"), num_shards=shards, shard_id=shard, epoch=epoch, **arguments)


def rows(batches):
    """The tokens that the model reads and those that it predicts, by the number of the block."""
    blocks = {}
    for batch in filter(None, batches):  # a process with fewer batches than another gets empty ones
        columns = batch["id"].tolist(), batch["net_input"]["src_tokens"], batch["target"]
        for number, tokens, target in zip(*columns, strict=True):
            real = tokens != 1
            assert number not in blocks
            blocks[number] = (tokens[real].tolist(), target[real].tolist())
    return blocks


def restored(tokens, target):
    """A block without its masks."""
    return [token if wanted == 1 else wanted for token, wanted in zip(tokens, target, strict=True)]


def test_an_epochs_blocks_are_its_documents(folder):
    batches = rows(iterator(folder, 1).next_epoch_itr())
    _, task = build(folder)
    task.load_dataset("train")
    documents, blocks = task.dataset("train").documents, task.dataset("train").blocks
    assert sorted(batches) == list(range(len(blocks)))
    assert {(tokens[0], tokens[-1]) for tokens, _ in batches.values()} == {(0, 2)}
    assert max(len(tokens) for tokens, _ in batches.values()) == LENGTH
    document_of = np.searchsorted(documents.bounds, blocks.first_token, side="right") - 1
    for number, document in enumerate(documents):
        contents = [restored(*batches[n])[1:-1] for n in np.flatnonzero(document_of == number)]
        assert [token for content in contents for token in content] == document[:-1].tolist()


def test_packed_blocks_are_full(folder):
    _, task = build(folder, "--document-blocks", "pack")
    task.load_dataset("train")
    dataset = task.dataset("train")
    assert (dataset.sizes[:-2] == LENGTH).all()
    batches = rows(iterator(folder, 1, "--document-blocks", "pack").next_epoch_itr())
    tokens = [token for number in sorted(batches) for token in restored(*batches[number])[1:-1]]
    assert tokens == dataset.documents.values[:-1].tolist()


def test_blocks_may_be_shorter_than_the_models_longest_input(folder, caplog):
    """Blocks of 20 for a model of 40 positions are those of a model of 20; without the flag they are of 40."""
    for pack in ("pack", "separate"):
        args, task = build(folder, "--block-tokens", "20", "--document-blocks", pack)
        _, short = build(folder, "--max-positions", "20", "--document-blocks", pack)
        for split in ("train", "valid"):
            with caplog.at_level(logging.INFO):
                task.load_dataset(split)
            short.load_dataset(split)
            blocks, expected = task.dataset(split), short.dataset(split)
            assert blocks.sizes.max() == 20
            assert blocks.sizes.tolist() == expected.sizes.tolist()
            assert blocks[0]["tokens"].tolist() == expected[0]["tokens"].tolist()
    assert "blocks of the full 20;" in caplog.text
    assert task.build_model(args).max_positions() == LENGTH
    args.max_positions = 20  # of the model alone
    assert task.build_model(args).max_positions() == 20
    args, task = build(folder, "--block-tokens", "41")
    with pytest.raises(ValueError, match=r"up to 41 tokens, but the model takes 40; .* or shorter blocks"):
        task.build_model(args)
    for number in ("0", "2"):
        with pytest.raises(ValueError, match=f"--block-tokens must be 3 or more, got {number}"):
            build(folder, "--block-tokens", number)


def test_masks_differ_between_epochs_and_are_the_same_for_workers_and_processes(folder):
    epoch_1, epoch_2 = (rows(iterator(folder, epoch).next_epoch_itr()) for epoch in (1, 2))
    assert epoch_1.keys() == epoch_2.keys()
    assert [restored(*epoch_1[n]) for n in sorted(epoch_1)] == [restored(*epoch_2[n]) for n in sorted(epoch_2)]
    same = [n for n in epoch_1 if epoch_1[n] == epoch_2[n] and len(epoch_1[n][0]) > 20]
    assert len(same) < len(epoch_1) / 20
    assert rows(iterator(folder, 2, num_workers=2).next_epoch_itr()) == epoch_2
    halves = [rows(iterator(folder, 2, shard=shard, shards=2).next_epoch_itr()) for shard in (0, 1)]
    assert halves[0].keys().isdisjoint(halves[1])
    assert halves[0] | halves[1] == epoch_2


def test_validation_masks_are_always_the_same(folder):
    masks = []
    for seed in ("3", "4"):
        _, task = build(folder, "--seed", seed)
        task.load_dataset("valid")
        dataset = task.dataset("valid")
        for epoch in (1, 5):
            dataset.set_epoch(epoch)
            masks.append([(dataset[n]["tokens"].tolist(), dataset[n]["target"].tolist()) for n in range(len(dataset))])
    assert all(other == masks[0] for other in masks)
    assert (np.diff(dataset.sizes[dataset.ordered_indices()]) >= 0).all()


def test_whole_words_are_the_tokenizers(folder):
    tokenizer = write_folder(folder / "again", {})
    for whole in ([], ["--mask-whole-words"]):
        _, task = build(folder, *whole)
        task.load_dataset("train")
        dataset = task.dataset("train")
        torn = 0
        for number in range(len(dataset)):
            item = dataset[number]
            tokens, target = restored(item["tokens"].tolist(), item["target"].tolist()), item["target"].tolist()
            for k in range(2, len(tokens) - 1):
                inside = not tokenizer.decode([tokens[k]])[:1].isspace()
                torn += inside and (target[k] == 1) != (target[k - 1] == 1)
        assert (torn == 0) == bool(whole)


def test_settings_that_cannot_work_are_refused(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"dict.txt: not found.*preprocess"):
        build(tmp_path)
    write_folder(tmp_path, {})
    with open(tmp_path / "dict.txt", "a") as file:
        file.write("a 1\n")
    with pytest.raises(ValueError, match="make the data folder again"):
        build(tmp_path)
    _, task = build(folder, "--min-block-tokens", "21")
    with pytest.raises(ValueError, match="half of max_tokens 40"):
        task.load_dataset("train")
    args, task = build(folder)
    args.max_positions = 20
    with pytest.raises(ValueError, match="up to 40 tokens, but the model takes 20; give both with --max-positions"):
        task.build_model(args)
    args, task = build(folder, "--freeze-pretrained", "--pooled-layers", "none")
    with pytest.raises(ValueError, match="leaves nothing to train: --max-positions must be more than"):
        task.build_model(args)


@pytest.fixture(scope="module", params=["poolingformer_roberta_tiny", "roberta_base"])
def model_and_batches(folder, request):
    sizes = ("--encoder-layers", "2", "--encoder-embed-dim", "32", "--encoder-attention-heads", "2")
    args, task = build(folder, *sizes, "--encoder-ffn-embed-dim", "32", arch=request.param)
    task.load_dataset("valid")
    torch.manual_seed(0)
    model = task.build_model(args).eval()
    torch.nn.init.normal_(model.encoder.lm_head.bias)
    dataset = task.dataset("valid")
    order = dataset.ordered_indices()
    return task, model, [dataset.collater([dataset[n] for n in order[k::3]]) for k in range(3)]


def test_loss_and_gradients_are_fairseqs(model_and_batches):
    task, model, batches = model_and_batches
    theirs = MaskedLmLoss.build_criterion(build(task.data_folder, "--criterion", "masked_lm")[0], task)
    results = []
    for criterion in (theirs, LongMaskedLMCriterion(task)):
        model.zero_grad()
        loss, size, log = criterion(model, batches[0])
        loss.backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        results.append((loss.detach(), int(size), int(log["ntokens"]), log["nsentences"], gradients))
    (loss, *counts, gradients), (our_loss, *our_counts, our_gradients) = results
    torch.testing.assert_close(our_loss, loss, rtol=1e-5, atol=0)
    assert counts == our_counts
    assert gradients.keys() == our_gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(our_gradients[name], gradient, rtol=1e-3, atol=1e-5, msg=name)


def test_bits_by_hand_and_reduced_over_workers(model_and_batches):
    task, model, batches = model_and_batches
    dataset = task.dataset("valid")
    texts = load_tokenizer(task.data_folder).symbol_texts()
    bits, tokens, characters = 0.0, 0, 0
    with torch.no_grad():
        logs = [LongMaskedLMCriterion(task)(model, batch)[2] for batch in batches]
        for number in range(len(dataset)):
            item = dataset[number]
            logits, _ = model(item["tokens"][None])
            target = item["target"].tolist()
            for row, wanted in zip(logits[0].double(), target, strict=True):
                if wanted != 1:
                    bits -= float(row[wanted] - row.exp().sum().log()) / math.log(2)
                    tokens += 1
            # every character belongs to the token that its first byte is in
            pieces = [texts[token] for token in restored(item["tokens"].tolist(), target)]
            token_of_byte = [k for k, piece in enumerate(pieces) for _ in piece]
            at = 0
            for character in b"".join(pieces).decode("utf-8", "surrogateescape"):
                characters += target[token_of_byte[at]] != 1 and not "\udc80" <= character < "\udcc0"
                at += len(character.encode("utf-8", "surrogateescape"))
    with metrics.aggregate() as meters:
        LongMaskedLMCriterion.reduce_metrics(logs)
    logged = meters.get_smoothed_values()
    assert logged.keys() == {*LongMaskedLMCriterion.logged}
    assert logged["loss"] == pytest.approx(bits / tokens, abs=1e-3)
    assert logged["bits_per_character"] == pytest.approx(bits / characters, abs=1e-3)
    assert logged["ppl"] == pytest.approx(2 ** (bits / tokens), rel=1e-2)


def test_a_batch_without_targets_reduces(model_and_batches):
    task, model, batches = model_and_batches
    batch = {**batches[0], "masked_positions": torch.zeros(0, dtype=torch.long), "num_characters": 0}
    loss, size, log = LongMaskedLMCriterion(task)(model, batch)
    loss.backward()
    assert (loss.item(), size) == (0, 0)
    with metrics.aggregate() as meters:
        LongMaskedLMCriterion.reduce_metrics([log])
    assert "bits_per_character" not in meters.get_smoothed_values()
