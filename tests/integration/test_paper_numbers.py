"""The papers' numbers in the run scripts at full size, by a dry run of all experiments."""

import functools
import re
from pathlib import Path

import pytest
import torch
from fairseq import tasks
from fairseq.options import get_training_parser, parse_args_and_arch
from torch import nn

from tests.forked_python import PYTHON
from tests.integration.conftest import dry_run, module, options
from tests.lab import SCRIPTS, run_script

pytestmark = pytest.mark.full
# flags of the rows that follow, then a row an experiment: its name, the examples of an update, its flags
NUMBERS = {
    # thesis §3.1; the numbers of updates are 203,037 and 119,924 documents, or 50,000, ten times over
    "summarization": """
* --max-target-length 256 --lr-scheduler polynomial_decay --warmup-updates 1000 --max-epoch 10 --optimizer fused_adamw
arxiv_4k 128 --arch poolingformer_bart_large --max-source-positions 4096 --lr 2e-4 --total-num-update 15870 \
    --window-size 128 --pooled-layers 6-11 --pooled-window-size 512 --pool-type ldconv \
    --pool-kernel-size 5 --pool-stride 4
arxiv_16k 128 --arch poolingformer_bart_large --max-source-positions 16384 --lr 1e-4 --total-num-update 15870 \
    --window-size 128 --pooled-layers 6-11 --pooled-window-size 512 --pool-type ldconv
pubmed_4k 128 --arch poolingformer_bart_large --lr 2e-4 --total-num-update 9370 --window-size 128 --pooled-layers 6-11
led_4k 128 --arch led_bart_large --max-source-positions 4096 --lr 2e-4 --window-size 512 --pooled-layers none
window_4k 128 --arch poolingformer_bart_large --lr 2e-4 --window-size 256 --pooled-layers none
led_1k 128 --arch led_bart_large --max-source-positions 1024 --lr 2e-4 --window-size 512 --pooled-layers none
led_16k 128 --arch led_bart_large --max-source-positions 16384 --lr 1e-4 --window-size 512 --pooled-layers none
window_16k 128 --max-source-positions 16384 --lr 1e-4 --window-size 256 --pooled-layers none
base_w128 128 --arch poolingformer_bart_base --max-source-positions 4096 --lr 1e-4 --total-num-update 3910 \
    --window-size 128 --pooled-layers none
base_w256 128 --window-size 256 --pooled-layers none
base_w512 128 --window-size 512 --pooled-layers none
base_w128_p256 128 --window-size 128 --pooled-layers 3-5 --pooled-window-size 256 --pool-type ldconv
base_w128_p512 128 --window-size 128 --pooled-layers 3-5 --pooled-window-size 512 --pool-type ldconv
base_copy 128 --window-size 128 --pooled-layers 3-5 --pooled-window-size 512 --pool-type ldconv --pooled-init copy
base_mean 128 --window-size 128 --pooled-layers 3-5 --pooled-window-size 512 --pool-type mean
base_max 128 --window-size 128 --pooled-layers 3-5 --pooled-window-size 512 --pool-type max
""",
    # Poolingformer §4.1 and its tables 5 to 7; thesis §3.2
    "question_answering": """
* --doc-stride 1568 --negative-share 0.5 --lr-scheduler polynomial_decay --max-epoch 2 --max-positions 4096
nq_large 64 --arch poolingformer_roberta_large --lr 2e-5 --finetune-from-model /out/roberta.large/model.pt \
    --window-size 128 --pooled-window-size 512 --pooled-layers 15-20 --pool-kernel-size 5 --pool-stride 4 \
    --pool-type ldconv
tydi_large 64 --arch poolingformer_xlmr_large --lr 2e-5 --finetune-from-model /out/xlmr.large/model.pt \
    --window-size 128 --pooled-window-size 512 --pooled-layers 15-20 --pool-type ldconv
nq_thesis 32 --arch poolingformer_roberta_large --lr 3e-5 --finetune-from-model /out/thesis_large/model.pt
nq_fusion 32 --arch poolingformer_deberta_large --lr 3e-5 --finetune-from-model /out/fusion_large/model.pt
roberta_512 - --window-size 512 --pooled-layers none --max-positions 512 --doc-stride -
w128 - --window-size 128 --pooled-layers none
w256 - --window-size 256 --pooled-layers none
w512 - --window-size 512 --pooled-layers none
w128_p256 - --window-size 128 --pooled-window-size 256 --pooled-layers 6-8 --pool-kernel-size 5 --pool-stride 4
w128_p512 - --window-size 128 --pooled-window-size 512 --pooled-layers 6-8 --pool-type ldconv
w128_p2048_c8 - --pooled-window-size 2048 --pool-kernel-size 9 --pool-stride 8 --pool-type ldconv
w128_p2048_c16 - --pooled-window-size 2048 --pool-kernel-size 17 --pool-stride 16 --pool-type ldconv
w128_all_c8 - --pooled-window-size all --pool-kernel-size 9 --pool-stride 8 --pool-type ldconv
w128_all_c16 - --pooled-window-size all --pool-kernel-size 17 --pool-stride 16 --pool-type ldconv
mean - --pool-type mean --pooled-window-size 512
max - --pool-type max --pooled-window-size 512
mean_ldconv - --pool-type mean-ldconv --pooled-window-size 512
mix - --pool-type ldconv --pooled-window-size 512 --pool-mix
share - --pool-type ldconv --pooled-window-size 512 --pool-share-weights
layers_1 - --pooled-layers 8
layers_6 - --pooled-layers 6-11
layers_all - --pooled-layers 0-11
""",
    # Longformer §6 and its tables 7 to 10 and 14
    "longformer_tasks": """
* --lr-scheduler polynomial_decay
imdb 32 --task document_classification --lr 3e-5 --max-epoch 15 --warmup-updates 1056 --max-positions 4096 \
    --window-size 256
wikihop 32 --task wikihop --lr 3e-5 --max-epoch 15 --warmup-updates 200 --max-positions 4096 --window-size 256
triviaqa 32 --task triviaqa --lr 3e-5 --max-epoch 5 --warmup-updates 1000 --max-positions 4096 --window-size 256
hotpotqa 32 --task hotpotqa --lr 3e-5 --max-epoch 5 --warmup-updates 1000 --max-positions 4096 --window-size 256
wikihop_2048 32 --task wikihop --max-positions 2048 --max-epoch 5 --window-size 256
wikihop_roberta 32 --task wikihop --max-positions 512 --window-size all
wikihop_no_projections 32 --task wikihop --arch poolingformer_roberta_base --pooled-layers none --window-size 256
wikihop_no_global 32 --no-global-attention
wikihop_large 32 --task wikihop --arch longformer_roberta_large --window-size 256
coreference 8 --lr 1e-5 --head-lr 1e-4 --batch-size 1 --update-freq 1 --no-global-attention
""",
    # thesis §3.1; Longformer §5; Poolingformer §4.1
    "pretraining": """
* --max-positions 4096
thesis_large 128 --arch poolingformer_roberta_large --lr 1e-4 --window-size 128 --pooled-layers 15-20 \
    --pooled-window-size 512 --pool-kernel-size 5 --pool-stride 4 --pool-type ldconv --max-epoch 4 --power 1
fusion_large 128 --arch poolingformer_deberta_large --lr 1e-4 --window-size 128 --pooled-layers 15-20 \
    --pooled-window-size 512 --pool-kernel-size 5 --pool-stride 4 --pool-type ldconv --max-epoch 4 --power 1
longformer_base 64 --arch poolingformer_roberta_base --global-tokens 0 \
    --lr 3e-5 --window-size 256 --pooled-layers none \
    --finetune-from-model /out/roberta.base/model.pt --max-update 65000 --total-num-update 65000 --power 3 \
    --warmup-updates 500
longformer_large 64 --arch poolingformer_roberta_large --global-tokens 0 \
    --pooled-layers none --lr 3e-5 --finetune-from-model /out/roberta.large/model.pt \
    --max-update 65000
frozen_base 64 --arch poolingformer_roberta_base --global-tokens 0 \
    --lr 3e-5 --window-size 256 --max-update 65000 --freeze-pretrained
start_base 8 --arch poolingformer_roberta_base --global-tokens 0 --lr 0 --window-size 256 --max-update 1
random_base 8 --arch poolingformer_roberta_base --global-tokens 0 \
    --lr 0 --window-size 256 --max-update 1 --position-init random
random_large 8 --arch poolingformer_roberta_large --global-tokens 0 \
    --lr 0 --window-size 256 --max-update 1 --position-init random
roberta_base 8 --arch poolingformer_roberta_base --lr 0 --window-size 512 --max-positions 512 --max-update 1
poolingformer_base 64 --arch poolingformer_roberta_base --lr 3e-5 --window-size 128 --pooled-layers 6-8 \
    --pooled-window-size 512 --finetune-from-model /out/roberta.base/model.pt --max-update 65000 --power 3
""",
    # Longformer's table 12, the published scripts of Transformer-XL and adaptive span, GAA §3.2
    "char_lm": """
* --lr-scheduler staged --optimizer fused_adamw --clip-norm 0.25 --weight-decay 0.01 --dropout 0.2
longformer_enwik8/stage1 32 --tokens-per-sample 2048 --max-update 430000 --stage-first-update 0 \
    --warmup-updates 10000 --lr 2.5e-4
longformer_enwik8/stage2 32 --tokens-per-sample 4096 --max-update 480000 --stage-first-update 430000 \
    --warmup-updates 5000 --lr 1.25e-4 --window-scale 2 \
    --restore-file /out/longformer_enwik8/stage1/checkpoints/checkpoint_last.pt
longformer_enwik8/stage3 16 --tokens-per-sample 8192 --max-update 530000 --stage-first-update 480000 \
    --warmup-updates 5000 --lr 6.25e-5 --window-scale 4 \
    --restore-file /out/longformer_enwik8/stage2/checkpoints/checkpoint_last.pt
longformer_enwik8/stage4 16 --tokens-per-sample 16384 --max-update 565000 --stage-first-update 530000 \
    --warmup-updates 3500 --lr 3.125e-5 --window-scale 8 \
    --restore-file /out/longformer_enwik8/stage3/checkpoints/checkpoint_last.pt
longformer_enwik8/stage5 16 --tokens-per-sample 23040 --max-update 570000 --stage-first-update 565000 \
    --warmup-updates 500 --lr 1.5625e-5 --window-scale 16 \
    --restore-file /out/longformer_enwik8/stage4/checkpoints/checkpoint_last.pt
* --lr-scheduler staged --optimizer fused_adamw --clip-norm 0.25 --weight-decay 0.01 --dropout 0.4
longformer_enwik8_large/stage1 32 --tokens-per-sample 2048 --max-update 350000 --stage-first-update 0 \
    --warmup-updates 10000 --lr 2.5e-4
longformer_enwik8_large/stage2 32 --tokens-per-sample 4096 --max-update 375000 --stage-first-update 350000 \
    --warmup-updates 2500 --lr 1.25e-4 --window-scale 2 \
    --restore-file /out/longformer_enwik8_large/stage1/checkpoints/checkpoint_last.pt
longformer_enwik8_large/stage3 16 --tokens-per-sample 8192 --max-update 385000 --stage-first-update 375000 \
    --warmup-updates 1000 --lr 6.25e-5 --window-scale 4 \
    --restore-file /out/longformer_enwik8_large/stage2/checkpoints/checkpoint_last.pt
longformer_enwik8_large/stage4 16 --tokens-per-sample 16384 --max-update 390000 --stage-first-update 385000 \
    --warmup-updates 500 --lr 3.125e-5 --window-scale 8 \
    --restore-file /out/longformer_enwik8_large/stage3/checkpoints/checkpoint_last.pt
longformer_enwik8_large/stage5 16 --tokens-per-sample 23040 --max-update 395000 --stage-first-update 390000 \
    --warmup-updates 500 --lr 1.5625e-5 --window-scale 16 \
    --restore-file /out/longformer_enwik8_large/stage4/checkpoints/checkpoint_last.pt
*
transformer_xl_enwik8/stage1 22 --lr-scheduler cosine --batch-size 11 --tokens-per-sample 512 --warmup-updates 0 \
    --max-update 400000 --clip-norm 0.25
transformer_xl_enwik8_large/stage1 64 --lr-scheduler cosine --batch-size 8 --tokens-per-sample 768 \
    --warmup-updates 4000 --max-update 400000
adaptive_span_enwik8_large/stage1 64 --lr 0.07 --max-update 150000 --warmup-updates 32000 \
    --optimizer clipped_adagrad --parameter-clip-norm 0.03
adaptive_span_enwik8_large/stage2 64 --lr 0.007 --max-update 170000 --warmup-updates 0 \
    --restore-file /out/adaptive_span_enwik8_large/stage1/checkpoints/checkpoint_last.pt
adaptive_span_text8_large/stage2 64 --lr 0.007 --max-update 270000 --stage-first-update 250000
gaa_text8/stage1 64 --max-update 200000 --optimizer clipped_adagrad --parameter-clip-norm 0.03
gaa_and_gate/stage1 64 --arch gaa_lm --max-update 150000
gaa_without_gate/stage1 64 --arch adaptive_span_lm --max-update 600000
gate_without_gaa/stage1 64 --arch gaa_lm --max-update 150000
""",
}
GPUS = {"char_lm": 2}  # 8 of the others: 22 rows of text go on 1, 2 or 11
ROWS = {}
for family, text in NUMBERS.items():
    for name, *flags in map(str.split, text.strip().splitlines()):
        if name == "*":
            common = options(["*", *flags])
        else:
            ROWS[family, name] = flags[0], {**common, **options(flags)}
# flags that a row has only where it says so
SWITCHES = {"--pool-mix", "--pool-share-weights", "--freeze-pretrained", "--no-global-attention"}


@functools.cache
def steps(family: str) -> dict[str, dict[str, list[str]]]:
    """By experiment and module the words of each command, of one dry run on eight GPUs."""
    names = [name for of, name in ROWS if of == family]
    commands: dict[str, dict[str, list[str]]] = {name: {} for name in names}
    experiments = ",".join(dict.fromkeys(name.split("/")[0] for name in names))
    for words in dry_run(f"{family}/run.sh", f"experiments={experiments}", f"gpus={GPUS.get(family, 8)}"):
        written = [options(words)["--save-dir"]] if "--save-dir" in words else words
        for name in names:
            if any(f"/out/{name}/" in word for word in written):
                commands[name][module(words)] = words
    return commands


@pytest.mark.parametrize(("family", "name"), ROWS)
def test_the_numbers_are_the_papers(family, name):
    batch, wanted = ROWS[family, name]
    words = steps(family)[name]["train"]
    train = options(words)
    switches = SWITCHES & set(wanted)
    assert SWITCHES & set(words) == switches
    assert {flag: train.get(flag) for flag in wanted if wanted[flag] != "-" and flag not in SWITCHES} == {
        flag: value for flag, value in wanted.items() if value != "-" and flag not in SWITCHES
    }
    assert ("--window-scale" in words) == ("--window-scale" in wanted)
    assert ("--pool-type" in words) == (train["--pooled-layers"] != "none" if "--pooled-layers" in train else False)
    if batch != "-":
        assert int(train["--batch-size"]) * int(train["--update-freq"]) * GPUS.get(family, 8) == int(batch)


def test_what_comes_before_and_after_the_training():
    for name, commands in steps("summarization").items():
        base = name.startswith("base")
        wanted = {"--beam": "5", "--lenpen": "1" if base else "2", "--no-repeat-ngram-size": "3" if base else "0"}
        wanted |= {"--max-len-b": "256"}
        generate = options(commands["generate"])
        assert {flag: generate.get(flag) for flag in wanted} == wanted
        assert options(commands["score"])["--json"] == f"/out/{name}/rouge.json"
    for name, commands in steps("question_answering").items():
        train = options(commands["train"])
        assert int(train["--warmup-updates"]) == int(train["--total-num-update"]) // 10
        assert options(commands["predict"])["--output"] == f"/out/{name}/predictions.7.json"  # of the last shard
        if "_" not in name or name.startswith(("w128", "layers")):
            assert name in (SCRIPTS / "question_answering" / "ablations.sh").read_text()
    for family, name, limit in (("summarization", "base_max", 50000), ("question_answering", "mix", 307373 // 5 + 1)):
        (preprocess,) = dry_run(f"{family}/run.sh", f"experiments={name}", "steps=preprocess", "gpus=8")
        assert options(preprocess)["--limit"] == str(limit)
    for commands in steps("pretraining").values():
        assert options(commands["train"])["--adam-betas"] == "(0.9, 0.98)"
    for name in ("wikihop", "triviaqa", "hotpotqa", "imdb"):
        assert steps("longformer_tasks")[name]["score"][4] == f"/out/{name}/predictions"


def test_the_fusion_is_trained_as_the_model_beside_it():
    """Thesis table 3.6: the same budget, whatever it is."""
    thesis, fusion = (steps("pretraining")[name]["train"] for name in ("thesis_large", "fusion_large"))
    assert [word.replace("fusion", "thesis").replace("deberta", "roberta") for word in fusion] == thesis


def char_lm_models(*arguments: str) -> dict[str, list[tuple[nn.Module, dict[str, str]]]]:
    """The models of the stages of each experiment, without memory for their parameters, and the flags."""
    models: dict[str, list[tuple[nn.Module, dict[str, str]]]] = {}
    for words in dry_run("char_lm/run.sh", "gpus=2", "steps=train", *arguments):
        words = [part for word in words[words.index("fairseq_cli.train") + 1 :] for part in word.split("=", 1)]
        args = parse_args_and_arch(get_training_parser(), words)
        with torch.device("meta"):
            model = tasks.setup_task(args).build_model(args)
        models.setdefault(Path(args.save_dir).parent.parent.name, []).append((model, options(words)))
    return models


def test_every_row_of_characters_is_understood():
    """By fairseq's parser and by the model, whose size without the large ones' is about 40 million parameters."""
    table = (SCRIPTS / "char_lm" / "experiments.txt").read_text().splitlines()
    names = [line.split()[0] for line in table if line and not line.startswith(("#", "name "))]
    models = char_lm_models(f"experiments={','.join(names)}")
    sizes = {name: {sum(p.numel() for p in model.parameters()) for model, _ in models[name]} for name in names}
    assert sizes["transformer_enwik8"] == sizes["transformer_text8"] == sizes["transformer_xl_enwik8"]
    for system in ("longformer", "transformer_xl", "adaptive_span"):
        (small,), (large,) = sizes[f"{system}_enwik8"], sizes[f"{system}_enwik8_large"]
        assert sizes[f"{system}_text8"] == {small}
        assert 38e6 < small < 42e6 < 100e6 < large
    # Longformer's table 4
    rows = ("window_increasing", "window_decreasing", "window_fixed", "dilation_two_heads")
    windows = [models[name][0][0].decoder.windows for name in rows]
    increasing, decreasing, fixed, dilated = ([window.left for window in row] for row in windows)
    assert increasing == sorted(increasing) == decreasing[::-1] == dilated
    assert fixed == [230] * 12
    assert [max(max(window.head_dilations(8)) for window in row) for row in windows] == [1, 1, 1, 4]
    # GAA's table 3: the share of the span and the gate
    parts = {
        name: (model.decoder.spans.shared is not None, any(".gate" in part for part, _ in model.named_parameters()))
        for name in ("adaptive_span_enwik8", "gate_without_gaa", "gaa_without_gate", "gaa_and_gate")
        for model, _ in models[name]
    }
    assert list(parts.values()) == [(False, False), (False, True), (True, False), (True, True)]


def test_models_with_spans_clip_each_parameter():
    """--fp16 must not make one parameter of all."""
    for precision, flat in (("fp16", False), ("bf16", True), ("fp32", True)):
        dry = ("experiments=gaa_text8,transformer_xl_enwik8", "steps=train", "gpus=2", f"precision={precision}")
        gaa, other = (options(words) for words in dry_run("char_lm/run.sh", *dry))
        assert "--clip-norm" not in gaa
        assert ("--fp16-no-flatten-grads" not in gaa) == flat
        assert not {"--fp16-no-flatten-grads", "--parameter-clip-norm"} & set(other)


PUBLISHED = {  # cells of a script's last table, or tables: those of the papers
    ("pretraining", "random_base,random_large,start_base"): ("10.299", "8.738", "1.957"),  # Longformer, table 5
    ("question_answering", "nq_thesis"): ("62.3", "64.8", "63.5", "48.7", "36.6", "41.7"),  # thesis, table 3.6
    ("question_answering", "nq_fusion"): ("65.4", "66.8", "66.1", "50.1", "42.3", "45.9"),
    ("question_answering", "tydi_large"): (
        *("79.5", "78.7", "79.1", "74.4", "63.2", "68.5"),  # ICML, table 3: dev, then the blind test
        *("80.4", "78.8", "79.5", "73.5", "63.3", "67.7"),
    ),
    ("char_lm", "gaa_enwik8,gaa_text8,adaptive_span_text8"): ("0.99", "1.10", "1.11", "345", "303", "314"),  # GAA
    ("char_lm", "transformer_enwik8,transformer_text8"): ("1.18", "1.18"),
    ("char_lm", "gaa_enwik8,gaa_text8,adaptive_span_enwik8,adaptive_span_text8,window_fixed subset=valid"): (
        *("1.02", "1.04", "1.04", "1.05", "1.23", "345", "303", "314"),
    ),
    ("char_lm", "window_fixed,adaptive_span_enwik8_large"): ("0.98",),  # not of its own split: nothing
    ("longformer_tasks", "wikihop_large,hotpotqa,hyperpartisan"): ("81.9", "64.4", "94.8"),
    ("summarization", "led_4k subset=valid"): ("44.40", "17.94", "39.76"),
}


@pytest.mark.parametrize(("family", "names"), PUBLISHED)
def test_a_script_ends_with_what_was_published(family, names):
    published = PUBLISHED[family, names]
    names, *more = names.split()
    dry = [f"experiments={names}", f"python={PYTHON}", "out=/out", "dry_run=1", "gpus=2", *more]
    lines = run_script(f"{family}/run.sh", *dry).splitlines()
    rows = [line.split() for line in lines if line.split()[:1] and line.split()[0].strip(",") in names.split(",")]
    numbers = [cell for row in rows for cell in row if re.fullmatch(r"[\d.]+", cell)]
    assert tuple(numbers) == published
    splits = {row[1] for row in rows if row[0].endswith(",") and re.search(r"\d", row[-1])}
    assert splits <= ({"valid"} if "gaa_enwik8" in names and more else {"valid", "test"})
    assert family != "summarization" or splits == {"test"}, "not beside the valid split, which is generated"


def test_what_the_thesis_says_of_the_corpora_is_beside_preprocessing():
    dry = ["experiments=arxiv_4k", "steps=preprocess", f"python={PYTHON}", "out=/out", "dry_run=1", "gpus=2"]
    last = run_script("summarization/run.sh", *dry).splitlines()[-1]
    assert last.startswith("# table 3.1, arxiv: 203,037 train")
    assert all(number in last for number in ("6,151", "14,405", "171", "352"))
