"""--criterion linear_cross_entropy beside fairseq's label_smoothed_cross_entropy, on the same models and batches."""

import pytest
import torch
from fairseq import tasks
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion

from fairseq_poolingformer.checkpoints import load
from fairseq_poolingformer.training import token_losses as functional
from fairseq_poolingformer.training.linear_cross_entropy import LinearCrossEntropyCriterion
from tests.models.tiny_bart import SIZES, parse, write_data_folder
from tests.patches.helpers import PACKAGE, TORCHRUN, TRAINING, assert_same_parameters, run, train
from tests.patches.test_half_precision import HALF

EXAMPLES = [([4 + n % 20] * (3 + 7 * n), [4 + n % 5, 9] * (1 + n)) for n in range(8)]
# a key's bias has no gradient but rounding errors, which Adam with a small ε would make into updates
SMOOTHED = ["--label-smoothing", "0.1", "--report-accuracy", "--adam-eps", "1e-4"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_data_folder(tmp_path_factory.mktemp("data"), splits={"train": EXAMPLES})


@pytest.fixture
def small_slices(monkeypatch):
    monkeypatch.setattr(functional, "LOGITS_AT_A_TIME", 400)


def build(folder, tied=True, **settings):
    """``(task, model, batch)``, the model in float64 and without dropout."""
    args = parse(folder, *SIZES, "--dropout", "0")
    args.share_all_embeddings = args.share_decoder_input_output_embed = tied
    vars(args).update(settings)
    task = tasks.setup_task(args)
    torch.manual_seed(0)
    model = task.build_model(args).double()
    task.load_dataset("train")
    dataset = task.dataset("train")
    return task, model, dataset.collater([dataset[n] for n in range(len(dataset))])


def both(task, **settings):
    settings = {"sentence_avg": False, "label_smoothing": 0.1} | settings
    return LinearCrossEntropyCriterion(task, **settings), LabelSmoothedCrossEntropyCriterion(task, **settings)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    "settings", [{}, {"label_smoothing": 0.0, "report_accuracy": True}, {"ignore_prefix_size": 2, "sentence_avg": True}]
)
def test_loss_gradients_and_logs_equal_fairseqs(folder, small_slices, tied, settings):
    task, model, batch = build(folder, tied)
    assert (batch["target"] == task.tgt_dict.pad()).any()
    assert (model.decoder.output_projection.weight is model.decoder.embed_tokens.weight) == tied
    gradients, logs = [], []
    for criterion in both(task, **settings):
        model.zero_grad()
        loss, sample_size, log = criterion(model, batch)
        loss.backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
        logs.append(log | {"sample_size returned": sample_size})
    # fairseq's logarithm of probabilities is in float32
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
    ours, theirs = ({name: float(value) for name, value in log.items()} for log in logs)
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_other_output_layers_are_refused_by_name(folder):
    task, model, batch = build(folder)
    criterion, _ = both(task)
    model.decoder.output_projection = None
    layer = r"linear output_projection, which PoolingformerBART does not have; use --crit"
    with pytest.raises(ValueError, match=layer):
        criterion(model, batch)
    task, model, batch = build(folder)
    model.decoder.adaptive_softmax = torch.nn.Identity()
    for options, message in (({}, layer), ({"reduce": False}, "label_smoothed_cross_entropy gives each token's loss")):
        with pytest.raises(ValueError, match=message):
            criterion(model, batch, **options)


PRECISIONS = {"float32": [], "amp": ["--amp"], **{name: HALF[name][0] for name in ("fp16", "bf16")}}


@pytest.mark.parametrize(
    "precision", ["float32", "fp16", *(pytest.param(name, marks=pytest.mark.full) for name in ("amp", "bf16"))]
)
def test_training_and_validation_equal_fairseqs(corpus, tmp_path, logged, precision):
    flags = [*SMOOTHED, *PRECISIONS[precision], "--update-freq", "2", "--max-update", "4"]
    ours = train(corpus, tmp_path / "ours", *flags, "--criterion", "linear_cross_entropy")
    theirs = train(corpus, tmp_path / "theirs", *flags, "--criterion", "label_smoothed_cross_entropy")
    exact = PRECISIONS[precision] in ([], ["--amp"])
    for outputs in logged.values():
        count = len(outputs) // 2
        for mine, expected in zip(outputs[:count], outputs[count:], strict=True):
            assert mine.keys() == expected.keys() >= {"loss", "nll_loss", "accuracy"}
            for name in ("loss", "nll_loss"):
                assert float(mine[name]) == pytest.approx(float(expected[name]), rel=0 if exact else 0.01, abs=0.0011)
    assert ours["extra_state"]["best"] == pytest.approx(theirs["extra_state"]["best"], rel=0.01)
    if exact:
        assert_same_parameters(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("backend", ["pytorch_ddp", "legacy_ddp"])
def test_two_processes_make_the_updates_of_one(corpus, tmp_path, backend):
    """Gradients of an embedding that is input and output layer come from inside and outside the wrapped model."""
    flags = [*TRAINING, *SMOOTHED, "--criterion", "linear_cross_entropy"]
    arguments = [corpus, *flags, "--user-dir", PACKAGE, "--save-dir", tmp_path / "two", "--ddp-backend", backend]
    run(*TORCHRUN, "fairseq_cli.train", *arguments, "--max-update", 3, cwd=tmp_path)
    flags = (*SMOOTHED, "--criterion", "label_smoothed_cross_entropy", "--max-update", 3, "--update-freq", 2)
    alone = train(corpus, tmp_path / "one", *flags)
    assert_same_parameters(load(tmp_path / "two" / "checkpoint_last.pt"), alone)
