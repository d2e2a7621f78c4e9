"""Checkpoints: save, resume, generate and validate, and no silent fresh start."""

import pytest
from fairseq import checkpoint_utils, options

from tests.patches.helpers import TRANSLATION, assert_same_parameters, generate, num_updates, parse, train


def test_save_resume_generate_validate(corpus, tmp_path):
    bleu = ["--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_b": 5}', "--best-checkpoint-metric", "bleu"]
    bleu = [*bleu, "--maximize-best-checkpoint-metric", "--eval-bleu-detok", "space"]
    ema = ["--store-ema", "--ema-fp32", "--ema-start-update", "1"]
    train(corpus, tmp_path / "twice", "--max-update", 3, *bleu, *ema)
    resumed = train(corpus, tmp_path / "twice", "--max-update", 6, *bleu, *ema)
    assert num_updates(resumed) == 6
    assert_same_parameters(resumed, train(corpus, tmp_path / "once", "--max-update", 6, *bleu, *ema))

    checkpoint = tmp_path / "twice" / "checkpoint_last.pt"
    assert len(generate(corpus, checkpoint, "--batch-size", 4)) == 12
    assert checkpoint_utils.load_ema_from_checkpoint(str(checkpoint))["model"].keys() == resumed["model"].keys()

    from fairseq_cli.validate import main

    arguments = [corpus, *TRANSLATION, "--path", checkpoint, "--batch-size", 4, "--cpu", "--num-workers", 0]
    main(parse(options.get_validation_parser(), arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--restore-file", "absent.pt"],
        ["--restore-file", "absent.pt", "--reset-optimizer", "--reset-dataloader"],
        ["--restore-file", "."],
        ["--finetune-from-model", "."],
    ],
)
def test_missing_checkpoint_stops(corpus, tmp_path, arguments):
    with pytest.raises(FileNotFoundError, match="--restore-file"):
        train(corpus, tmp_path, "--max-update", 1, *arguments)
    assert not (tmp_path / "checkpoint_last.pt").exists()


def test_restore_and_finetune_keep_their_meaning(corpus, tmp_path):
    start = tmp_path / "first" / "checkpoint_last.pt"
    train(corpus, start.parent, "--max-update", 2)
    restored = train(corpus, tmp_path / "restored", "--max-update", 3, "--restore-file", start)
    assert num_updates(restored) == 3
    reset = ["--reset-optimizer", "--reset-dataloader", "--reset-meters", "--reset-lr-scheduler"]
    restarted = train(corpus, tmp_path / "reset", "--max-update", 1, "--restore-file", start, *reset)
    tuned = train(corpus, tmp_path / "tuned", "--max-update", 1, "--finetune-from-model", start)
    assert_same_parameters(restarted, tuned)
