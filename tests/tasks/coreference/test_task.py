import math

import pytest
import torch
from fairseq import options, tasks
from fairseq.distributed import utils as distributed_utils
from fairseq_cli.train import main as train_main

from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.cli import predict
from fairseq_poolingformer.cli import score as command
from fairseq_poolingformer.tasks.coreference.head import Antecedents
from fairseq_poolingformer.tasks.coreference.scores import score
from fairseq_poolingformer.tasks.coreference.task import CoreferenceConfig, CoreferenceTask
from preprocess import ontonotes
from tests.models.tiny_bart import USER_DIR
from tests.patches.helpers import parse
from tests.preprocess.test_ontonotes import TRAIN
from tests.text.tiny_gpt2 import write_vocabulary

SMALL = [
    *("--max-positions", "64", "--dropout", "0"),
    *("--head-hidden", "32", "--max-span-width", "9", "--head-dropout", "0"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The fixture as a data folder; its valid split is its train split, to see what has been learned by heart."""
    path = tmp_path_factory.mktemp("coreference")
    write_vocabulary(path / "gpt2")
    arguments = ["--output-folder", path / "data", "--gpt2-bpe", path / "gpt2", "--workers", "1"]
    assert ontonotes.main(list(map(str, [*arguments, "--train", TRAIN, "--valid", TRAIN]))) == 0
    return path / "data"


def arguments(folder, *extra, arch="longformer_roberta_tiny"):
    return [
        *(folder, "--user-dir", USER_DIR, "--task", "coreference", "--criterion", "document_task", "--arch", arch),
        *("--optimizer", "fused_adamw", "--lr", "1e-3", "--head-lr", "2e-3", "--clip-norm", "1", "--batch-size", "1"),
        *("--lr-scheduler", "polynomial_decay", "--cpu", "--num-workers", "0", "--no-progress-bar", "--seed", "3"),
        *("--best-checkpoint-metric", "conll_f1", "--maximize-best-checkpoint-metric", "--attention-dropout", "0"),
        *(*SMALL, *extra),
    ]


def test_the_file_of_predictions_has_the_figures_of_validation_and_the_head_a_learning_rate(folder, tmp_path):
    flags = ("--warmup-updates", "2", "--total-num-update", "8", "--save-dir", tmp_path, "--validate-interval", "1000")
    words = arguments(folder, *flags, "--max-update", "8", "--no-epoch-checkpoints")
    distributed_utils.call_main(parse(options.get_training_parser(), words), train_main)
    path, predictions = tmp_path / "checkpoint_last.pt", tmp_path / "predictions.conll"
    checkpoint = load(path)
    assert [group["lr_scale"] for group in checkpoint["last_optimizer_state"]["param_groups"][1:]] == [2.0]
    assert predict.main(list(map(str, [folder, "--path", path, "--output", predictions, "--device", "cpu"]))) == 0
    assert command.main(["--task", "coreference", "--gold", str(TRAIN), "--predictions", str(predictions)]) == 0
    figures = score([TRAIN], predictions)
    assert checkpoint["extra_state"]["val_loss"] == pytest.approx(figures["conll_f1"], abs=0.006)


def build(folder, *flags):
    args = options.parse_args_and_arch(options.get_training_parser(), list(map(str, arguments(folder, *flags))))
    task = tasks.setup_task(args)
    torch.manual_seed(1)
    return task, task.build_model(args)


def loss_of(cfg, spans, antecedents, mentions, mention_scores):
    """The loss, and sums for metrics, of antecedents that are chosen for sure."""
    task = object.__new__(CoreferenceTask)
    task.cfg = cfg
    scores = torch.full((len(spans), len(spans) + 1), -torch.inf)
    scores[:, 0] = 0
    for number, antecedent in enumerate(antecedents):
        if antecedent >= 0:
            scores[number, antecedent + 1] = 1
    numbers, spans = torch.arange(len(spans)).expand(len(spans), -1), torch.tensor(spans)
    output = Antecedents(spans, numbers, scores, spans, mention_scores)
    return task.loss([output], {"mentions": [torch.tensor(mentions, dtype=torch.long).reshape(-1, 3)]})


def test_the_loss_of_mention_scores_is_added_with_its_weight_and_training_does_not_count(folder):
    case = ([[0, 1], [2, 3], [4, 5]], [-1, 0, -1], [[0, 1, 1], [2, 3, 1]], torch.tensor([2.0, -1.0, 3.0]))
    plain, _ = loss_of(CoreferenceConfig(), *case)
    weighted, _ = loss_of(CoreferenceConfig(mention_loss_weight=0.5), *case)
    expected = sum(math.log1p(math.exp(wrong)) for wrong in (-2.0, 1.0, 3.0))
    torch.testing.assert_close(weighted - plain, torch.tensor(0.5 * expected))
    assert loss_of(CoreferenceConfig(), [[0, 1]], [-1], [], torch.zeros(1))[1] == {}
    with pytest.raises(ValueError, match="depth must be 1 or more, got 0"):
        build(folder, "--coreference-depth", "0")
