"""No model, criterion or search makes a tensor on the CPU when it runs elsewhere: a stand-in for a GPU's tests."""

import numpy as np
import pytest
import torch
from fairseq import utils

from tests import lab
from tests.models import tiny_bart
from tests.other_device import OtherTensor, other_device, to_other_device
from tests.tasks.coreference.test_task import folder as coreference_folder  # noqa: F401 (a fixture)
from tests.tasks.folders import random_wikihop, write_wikihop
from tests.tasks.released_files import hotpotqa_folder, triviaqa_folder

WIDTH = ("--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "16", "--encoder-attention-heads", "2")
ONE_LEVEL = (*WIDTH, "--encoder-layers", "1", "--window-size", "8")
SMALL = (*ONE_LEVEL, "--pooled-layers", "0", "--pooled-window-size", "16")
QUERY_ALIGNED = ("--pool-alignment", "query", "--pool-mix")


class Here:
    """A model on the CPU, its criterion, and a batch of its task's training data."""

    def __init__(self, folder, task, criterion, arch, *flags, size=2):
        no_dropout = ("--dropout", 0, "--attention-dropout", 0, "--activation-dropout", 0)  # which draws numbers there
        self.args, self.task = lab.task(folder, task, arch, *no_dropout, *flags, criterion=criterion)
        torch.manual_seed(0)
        self.model, self.criterion = self.task.build_model(self.args), self.task.build_criterion(self.args)
        self.task.load_dataset("train")
        self.batch = self.task.get_batch_iterator(self.task.dataset("train"), max_sentences=size).first_batch

    def step(self):
        """The loss and the gradients of one update."""
        self.model.zero_grad()
        loss, _, _ = self.criterion(self.model, self.batch)
        loss.backward()
        return loss.detach(), {name: p.grad for name, p in self.model.named_parameters() if p.grad is not None}

    def search(self):
        """The tokens of each document's best summary, which is short."""
        self.args.max_len_a, self.args.max_len_b = 0, 4
        generator = self.task.build_generator([self.model.eval()], self.args)
        return [beam[0]["tokens"].tolist() for beam in self.task.inference_step(generator, [self.model], self.batch)]


class There(Here):
    """A function's results on the other device."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        to_other_device(self.model)
        self.batch = utils.apply_to_sample(OtherTensor, self.batch)

    def step(self):
        with other_device():
            loss, grads = super().step()
        return loss.inner, {name: grad.inner for name, grad in grads.items()}

    def search(self):
        with other_device():
            return super().search()


def same_steps(*args, updates=1, size=2):
    """A model and its twin on the other device, which have made the same steps."""
    here, there = Here(*args, size=size), There(*args, size=size)
    for _ in range(updates):
        (loss, grads), (other_loss, other_grads) = here.step(), there.step()
        torch.testing.assert_close(other_loss, loss)
        assert other_grads.keys() == grads.keys()
        for name, grad in grads.items():
            torch.testing.assert_close(
                other_grads[name], grad, rtol=1e-4, atol=1e-4, msg=lambda message, name=name: f"{name}: {message}"
            )
    return here, there


@pytest.mark.parametrize("flags", [(), QUERY_ALIGNED, ("--checkpoint-activations",)])
def test_summarization(tmp_path, flags):
    random = np.random.default_rng(0)
    pairs = [(random.integers(4, 34, n).tolist(), random.integers(4, 34, 7).tolist()) for n in (60, 33)]
    folder = tiny_bart.write_data_folder(tmp_path, splits={"train": pairs})
    sizes = (*SMALL, "--decoder-layers", "1", "--decoder-attention-heads", "2", "--label-smoothing", "0.1")
    arch = "poolingformer_bart_tiny"
    here, there = same_steps(folder, "long_summarization", "linear_cross_entropy", arch, *sizes, *flags)
    if not flags:
        assert there.search() == here.search()


@pytest.mark.parametrize(
    "arch", ["poolingformer_roberta_tiny", "poolingformer_deberta_tiny", "longformer_roberta_tiny"]
)
def test_masked_language_model(arch):
    sizes = SMALL if arch.startswith("pooling") else ONE_LEVEL
    same_steps(lab.texts(), "long_masked_lm", "long_masked_lm", arch, "--max-positions", "40", *sizes)


@pytest.mark.parametrize(
    "arch", ["longformer_lm_small", "transformer_xl_lm", "adaptive_span_lm", "gaa_lm", "transformer_lm_full"]
)
def test_character_language_model(arch):
    sizes = ("--decoder-layers", "1", "--decoder-embed-dim", "16", "--decoder-ffn-embed-dim", "24")
    flags = (*sizes, "--decoder-attention-heads", "4", "--tokens-per-sample", "20")
    flags += ("--window-size", "9", "--dilation", "2") if arch.startswith("longformer") else ()
    same_steps(lab.characters(), "char_lm", "char_lm", arch, *flags, updates=2)


def test_question_answering():
    flags = ("--max-positions", "40", "--max-question-length", "6", "--doc-stride", "8", *SMALL)
    same_steps(lab.questions(), "question_answering", "question_answering", "poolingformer_roberta_tiny", *flags)


@pytest.mark.parametrize("kind", ["wikihop", "triviaqa", "hotpotqa", "coreference"])
def test_downstream_tasks(tmp_path, kind, coreference_folder):  # noqa: F811
    if kind == "wikihop":
        folder = write_wikihop(tmp_path, {"train": [x for x in random_wikihop(8, seed=3) if x["answer"]][:3]})
    elif kind == "coreference":
        folder = coreference_folder
    else:
        folder = (triviaqa_folder if kind == "triviaqa" else hotpotqa_folder)(tmp_path)
    flags = ("--max-positions", "320", *SMALL, *(("--head-dropout", "0") if kind == "coreference" else ()))
    same_steps(folder, kind, "document_task", "poolingformer_roberta_tiny", *flags, size=1)
