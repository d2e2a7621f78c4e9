"""Files of strangers: options arrive as the training had them, nothing that they say is run or written."""

import re
import sys
from argparse import Namespace
from dataclasses import dataclass, field
from pathlib import Path

import fairseq
import pytest
import torch
from fairseq import checkpoint_utils, file_utils, options, tasks
from fairseq.criterions import CRITERION_REGISTRY, build_criterion
from fairseq.data import Dictionary, data_utils, encoders
from fairseq.distributed import utils as distributed_utils
from fairseq.models.roberta.hub_interface import RobertaHubInterface
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq_cli import validate as fairseq_validate
from fairseq_cli.train import main as train_main
from omegaconf import OmegaConf

from fairseq_poolingformer.checkpoints import ConfigurationError, load
from fairseq_poolingformer.models import PoolingformerBART
from fairseq_poolingformer.patches import CheckpointError, table
from fairseq_poolingformer.patches.untrusted_files import LARGEST, REPLACED, as_trained, literal
from fairseq_poolingformer.weights.files import write_checkpoint
from tests import lab
from tests.models import tiny_bart
from tests.patches.helpers import TRAINING, TRANSLATION, parse, train

table.apply()

# ----- options

MODEL = ["--arch", "poolingformer_bart_tiny", *tiny_bart.SIZES, "--pooled-layers", "2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_bart.write_data_folder(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def good(folder):
    _, model = tiny_bart.build(folder, *MODEL)
    return vars(tiny_bart.parse(folder, *MODEL)), model.state_dict()


@pytest.mark.parametrize("sections", [False, True])
def test_options_arrive_as_they_were_trained(good, tmp_path, sections):
    """In all sections, whatever their names, but for the data folder and what its machine decides."""
    names = ("encoder_embed_path", "scale_from", "config_yaml", "tensorboard_logdir", "lang_dict")
    machine = {"user_dir": "/x", "tpu": True, "seed": 5, "data": "/gone"}
    machine |= {"distributed_init_method": "tcp://localhost:1", "tensorboard_logdir": "s3://bucket/x", "lang": "en_XX"}
    machine |= {"source_lang": None, "lang_pairs": ["en-de", "de-zh_CN"], "valid_subset": "valid,valid1", "langs": ""}
    trained = {**good[0], **dict.fromkeys(names, "x.txt"), "inner": {"layers": [1, (2, "a")]}, **machine}
    options = {"args": Namespace(**trained)}
    if sections:
        cfg = {"model": Namespace(**trained), "task": trained, "common": {"seed": 5, "user_dir": "/x"}, "bpe": None}
        options = {"args": None, "cfg": cfg}
    state = as_trained({**options, "model": good[1]}, tmp_path / "x.pt")
    if sections:
        cfg = state["cfg"]
        assert (cfg["common"], cfg["bpe"]) == ({"seed": 5, "user_dir": None}, None)
        parts = [vars(cfg["model"]), cfg["task"]]
    else:
        parts = [vars(state["args"])]
    expected = {**trained, **{name: REPLACED[name] for name in trained if name in REPLACED}, "data": str(tmp_path)}
    assert {"user_dir", "ddp_backend", "tpu"} < REPLACED.keys() & trained.keys()
    assert parts == [expected] * len(parts)


@pytest.mark.parametrize("where", ["args", "model", "generation", "inner"])
def test_nothing_is_looked_up(good, folder, tmp_path, where):
    """The environment, for example, which a checkpoint could send away in the address of a file."""
    value = "http://127.0.0.1/${oc.env:TOKEN}"
    added = {"w2v_args": Namespace(x=[value])} if where == "inner" else {"encoder_embed_path": value}
    model = Namespace(**(good[0] if where == "generation" else good[0] | added))
    sections = {"model": model, "task": good[0], "generation": {"replace_unk": value}}
    kind = {"args": model} if where == "args" else {"args": None, "cfg": sections}
    torch.save({"model": good[1], **kind}, tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match=r"x\.pt cannot be used: its option .*TOKEN.* is no plain data"):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "x.pt"))


@pytest.mark.parametrize("kind", ["args", "cfg"])
@pytest.mark.parametrize("name", ["source_lang", "lang", "lang_pairs", "langs", "valid_subset", "dataset_impl"])
@pytest.mark.parametrize("value", ["a$(touch x)", "../a", "a b", ["en-de", "a/b"], "a\n"])
def test_what_becomes_a_part_of_a_files_name_is_plain(tmp_path, kind, name, value):
    state = {"args": Namespace(**{name: value})} if kind == "args" else {"cfg": {"task": {name: value}}}
    with pytest.raises(ConfigurationError, match=f"its option {name} is .*, which would be a part of names of files"):
        as_trained(state, tmp_path / "x.pt")
    state = as_trained(state, tmp_path / "x.pt", is_used=False)  # a training goes on with its own names
    assert (vars(state["args"]) if kind == "args" else state["cfg"]["task"])[name] == value


def test_options_without_end_are_refused(good, tmp_path):
    options = ["x"]
    for _ in range(40):
        options = [options, options]
    with pytest.raises(ConfigurationError, match="more than 100000 options"):
        as_trained({"args": Namespace(layers=options)}, tmp_path / "x.pt")


def test_a_language_model_is_used_without_the_machine_of_its_training(text, tmp_path):
    flags = ["--task", "language_modeling", "--arch", "transformer_lm", "--tokens-per-sample", 8, "--max-update", 1]
    sizes = ["--decoder-layers", 1, "--decoder-embed-dim", 8, "--decoder-ffn-embed-dim", 8, "--optimizer", "adam"]
    more = ["--batch-size", 4, "--disable-validation", "--cpu", "--num-workers", 0]
    path = train_with([text, *flags, *sizes, *more], tmp_path)
    _, _, task = checkpoint_utils.load_model_ensemble_and_task([path], {"data": str(text)})
    assert task.args.tokens_per_sample == 8


def train_with(arguments, folder):
    cfg = parse(options.get_training_parser(), [*arguments, "--save-dir", folder])
    distributed_utils.call_main(cfg, train_main)
    return str(folder / "checkpoint_last.pt")


@pytest.fixture
def requests(monkeypatch):
    """Addresses that fairseq asks; each answers with a file of GPT-2's vocabulary."""
    asked = []

    def answer(address, *unused):
        asked.append(address)
        return str(lab.gpt2() / address.rpartition("/")[2])

    monkeypatch.setattr(file_utils, "get_from_cache", answer)
    return asked


FETCHED = [f"https://dl.fbaipublicfiles.com/fairseq/gpt2_bpe/{name}" for name in ("encoder.json", "vocab.bpe")]
MIRROR = "https://mirror.example/encoder.json"


def with_bpe(state, encoder, folder):
    state["cfg"]["bpe"] = {"_name": "gpt2", "gpt2_encoder_json": encoder, "gpt2_vocab_bpe": FETCHED[1]}
    torch.save(state, folder / "model.pt")


@pytest.mark.parametrize(
    "encoder", [MIRROR, MIRROR.upper(), "s3://bucket/x", "file:///etc/passwd", "/dev/null", "missing"]
)
def test_no_address_of_a_checkpoint_is_asked(tmp_path, requests, encoder):
    """Nor is a device or a pipe read; one's own path is."""
    lab.copy(lab.summaries(), tmp_path)
    with_bpe(load(lab.bart()), encoder, tmp_path)
    with pytest.raises(CheckpointError, match=f"{encoder} is not a file, and a checkpoint's options may name nothing"):
        PoolingformerBART.from_pretrained(str(tmp_path), "model.pt")
    assert requests == []
    PoolingformerBART.from_pretrained(str(tmp_path), gpt2_encoder_json=str(lab.gpt2() / "encoder.json"))
    assert set(requests) == {FETCHED[1]}


def test_roberta_asks_no_address_of_a_checkpoint(requests):
    config = OmegaConf.create({"bpe": {"_name": "gpt2", "gpt2_encoder_json": MIRROR}})
    with pytest.raises(CheckpointError, match="is not a file"):
        RobertaHubInterface(config, None, None)
    assert requests == []


def test_names_and_addresses_of_a_checkpoint_that_is_used_are_checked(corpus, tmp_path, requests, monkeypatch):
    state = train(corpus, tmp_path, "--max-update", 1)
    with monkeypatch.context() as patch:
        bpe = Namespace(bpe="gpt2", gpt2_encoder_json=MIRROR)
        patch.setattr(TranslationTask, "build_model", lambda self, cfg: encoders.build_bpe(bpe))
        with pytest.raises(CheckpointError, match=f"{MIRROR} is not a file"):
            checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "checkpoint_last.pt")])
    assert requests == []
    state["cfg"]["task"]["source_lang"] = "a$(touch ran)"
    torch.save(state, tmp_path / "checkpoint_last.pt")
    with pytest.raises(CheckpointError, match=r"checkpoint_last\.pt cannot be used: its option source_lang"):
        checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "checkpoint_last.pt")])
    train(corpus, tmp_path, "--max-update", 2)  # goes on with its own options


def test_fairseqs_own_addresses_and_ones_own_are_asked(tmp_path, requests):
    lab.copy(lab.summaries(), tmp_path)
    with_bpe(load(lab.bart()), FETCHED[0], tmp_path)
    PoolingformerBART.from_pretrained(str(tmp_path))
    assert set(requests) == set(FETCHED)
    requests.clear()
    torch.save(load(lab.bart()), tmp_path / "model.pt")
    PoolingformerBART.from_pretrained(str(tmp_path), bpe="gpt2")
    assert set(requests) == set(FETCHED)
    requests.clear()
    encoders.build_bpe(Namespace(bpe="gpt2", gpt2_encoder_json=MIRROR, gpt2_vocab_bpe=FETCHED[1]))  # a command's
    assert requests == [MIRROR, FETCHED[1]]


def test_validation_asks_no_address_of_the_checkpoint(text, tmp_path, requests, monkeypatch):
    """Its dataset is made after the model: --mask-whole-words needs a bpe, which fairseq's task has lost."""
    monkeypatch.setattr(MaskedLMTask, "args", property(lambda task: task.cfg._get_root().bpe), raising=False)
    flags = ["--task", "masked_lm", "--arch", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", 16]
    sizes = [f"--encoder-{name}" for name in ("embed-dim", "ffn-embed-dim", "layers", "attention-heads")]
    sizes = [word for name, size in zip(sizes, (8, 8, 1, 1), strict=True) for word in (name, size)]
    more = ["--optimizer", "adam", "--batch-size", 4, "--max-update", 1, "--disable-validation", "--cpu"]
    path = Path(train_with([text, *flags, *sizes, *more, "--num-workers", 0], tmp_path / "run"))
    state = load(path)
    state["cfg"]["task"]["mask_whole_words"] = True
    with_bpe(state, MIRROR, path.parent)
    arguments = [text, "--path", path.parent / "model.pt", "--task", "masked_lm", "--batch-size", 4, "--cpu"]
    with pytest.raises(CheckpointError, match=f"{MIRROR} is not a file"):
        fairseq_validate.main(parse(options.get_validation_parser(), [*arguments, "--num-workers", 0]))
    assert requests == []


@pytest.mark.parametrize(("name", "impl"), [("a", "fasta"), ("a", None), ("$(touch ran)", "fasta"), ("a b", "mmap")])
def test_no_name_reaches_a_shell(tmp_path, name, impl):
    """By which fairseq reads FASTA, also where it only finds such a file."""
    (tmp_path / f"{name}.fasta").write_text(">x\nAB\n")
    with pytest.raises(ConfigurationError, match="is not opened as a dataset of kind"):
        data_utils.load_indexed_dataset(str(tmp_path / name), Dictionary(), impl)


def test_no_file_of_the_users_is_written(tmp_path, good):
    """fairseq-validate builds sentence_ranking, which then opens its ``save_predictions`` for writing."""
    (tmp_path / "user").write_text("mine")
    options = {"_name": "sentence_ranking", "num_classes": 2, "ranking_head_name": "x"}
    for defended in (True, False):  # the attack is one
        state = {"cfg": {"criterion": {**options, "save_predictions": str(tmp_path / "user")}}}
        state = as_trained(state, tmp_path / "x.pt") if defended else state
        CRITERION_REGISTRY["sentence_ranking"].build_criterion(Namespace(**state["cfg"]["criterion"]), None)
        assert ((tmp_path / "user").read_text() == "mine") == defended


@dataclass
class OwnConfig(TranslationConfig):
    template: str = field(default="a")
    weights_path: str = field(default="b")
    share: float = field(default=0.5)


@pytest.fixture
def own_task(monkeypatch):
    monkeypatch.setattr(tasks, "TASK_REGISTRY", dict(tasks.TASK_REGISTRY))
    for name in ("TASK_REGISTRY", "TASK_DATACLASS_REGISTRY", "TASK_CLASS_NAMES"):
        now = getattr(tasks, name)
        monkeypatch.setattr(tasks, name, type(now)(now))

    @tasks.register_task("own_translation", dataclass=OwnConfig)
    class OwnTask(TranslationTask):
        pass


def test_options_of_an_own_task_arrive(own_task, corpus, tmp_path):
    flags = ["--task", "own_translation", "--template", "yes/no: it's {x}", "--weights-path", "x", "--share", "0.25"]
    train(corpus, tmp_path, "--max-update", 1, *flags)
    path = str(tmp_path / "checkpoint_last.pt")
    _, _, task = checkpoint_utils.load_model_ensemble_and_task([path], {"data": str(corpus)})
    assert type(task).__name__ == "OwnTask"
    assert (task.cfg.template, task.cfg.weights_path, task.cfg.share) == ("yes/no: it's {x}", "x", 0.25)


MULTILINGUAL = ["--task", "multilingual_translation", "--arch", "multilingual_transformer", "--lang-pairs", "src-tgt"]


@pytest.mark.parametrize(
    ("flags", "part", "option", "value"),
    [
        ([*TRANSLATION, "--encoder-layerdrop", "0.01"], "model", "encoder_layerdrop", 0.01),
        (MULTILINGUAL, "task", "left_pad_source", True),
    ],
)
def test_checkpoints_of_fairseqs_own_are_used(corpus, tmp_path, flags, part, option, value):
    arguments = [corpus, *TRAINING[len(TRANSLATION) :], *flags, "--max-update", 1, "--disable-validation"]
    path = train_with(arguments, tmp_path)
    (model,), cfg, _ = checkpoint_utils.load_model_ensemble_and_task([path], {"data": str(corpus)})
    state = checkpoint_utils.load_checkpoint_to_cpu(path)["model"]
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert getattr(cfg[part], option) == value


def test_the_users_own_overrides_are_followed(tmp_path, good, folder):
    write_checkpoint(tmp_path / "x.pt", {**good[0], "max_source_positions": 4096}, good[1])
    overrides = {"data": str(folder), "max_source_positions": 9000, "dropout": 0.5}
    (model,), cfg, _ = checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "x.pt")], overrides)
    assert (model.encoder.max_positions(), cfg.model.dropout) == (9000, 0.5)


@pytest.mark.parametrize(
    "changed", [{"encoder_layers": 4}, {"encoder_embed_dim": "x"}, {"arch": "none"}, {"task": "no_such"}, {"data": 3}]
)
def test_options_that_do_not_fit_are_one_sentence(tmp_path, good, folder, changed):
    write_checkpoint(tmp_path / "x.pt", {**good[0], **changed}, good[1])
    with pytest.raises((CheckpointError, FileNotFoundError)) as caught:
        checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "x.pt")])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("tensors", "most"), [(3, 100), (150, 150)])
def test_layers_that_fairseq_would_build_are_bounded_by_the_tensors(tmp_path, tensors, most):
    """A hundred where layers share theirs."""
    model = dict.fromkeys(map(str, range(tensors)))
    for name in ("encoder_layers", "decoder_layers"):
        as_trained({"model": model, "args": Namespace(**{name: most})}, tmp_path / "x.pt")
        state = {"model": model, "args": Namespace(**{name: most + 1})}
        with pytest.raises(ConfigurationError, match=f"its option {name} is {most + 1}, and it has {tensors} tensors"):
            as_trained(state, tmp_path / "x.pt")
        as_trained(state, tmp_path / "x.pt", is_used=False)


@pytest.mark.parametrize("sections", [True, False])
def test_a_loss_that_refuses_a_way_of_training_is_built(good, sections):
    state = {"args": Namespace(**{**good[0], "criterion": "adaptive_loss", "ddp_backend": "pytorch_ddp"})}
    if sections:
        criterion = {"_name": "adaptive_loss", "ddp_backend": "pytorch_ddp", "sentence_avg": False}
        state = {"args": None, "cfg": {"criterion": criterion}}
    state = as_trained({"model": good[1], **state}, Path("x.pt"))
    cfg = OmegaConf.create(state["cfg"], flags={"allow_objects": True}).criterion if sections else state["args"]
    assert type(build_criterion(cfg, None)).__name__ == "AdaptiveLoss"


# ----- strings that fairseq evaluates


@pytest.mark.parametrize(
    "text",
    ["[(512, 3)] * 20", "[(512, 10, 5)] + [(512, 3, 2)] * 4", "3 * [1]", "(0.9, 0.98)", "True", "-1e-3", " 'a' "],
)
def test_literals_are_what_python_evaluates(text):
    assert literal(text) == eval(text.strip())


@pytest.mark.parametrize(
    "text",
    [
        *("__import__('os')", "[].__class__", "[x for x in ()]", "2 ** 99", "lambda: 0", "open", "f'{1}'", ""),
        *("[0] * 10 * 1000000", "'a' * 1000000", "1, " * LARGEST, "(" * 5000, "[1] + 2", "\0"),
    ],
)
def test_everything_else_is_refused(text):
    with pytest.raises(ConfigurationError, match=r"not a number, text, list or tuple"):
        literal(text)


def test_every_eval_of_fairseq_is_replaced():
    """A fairseq with an eval in another module must be looked at: its module may be loaded only later."""
    folder, modules = Path(fairseq.__file__).parent, []
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).with_suffix("").parts
        if parts[0] != "examples" and re.search(r"(?<![.\w])(eval|exec)\(", path.read_text(encoding="utf-8")):
            modules.append(".".join(("fairseq", *parts)))
    assert len(modules) > 10
    assert [name for name in modules if vars(sys.modules[name]).get("eval") is not literal] == []


LANGUAGE_MODEL = {"task": "language_modeling", "sample_break_mode": "none", "tokens_per_sample": 8}
LANGUAGE_MODEL |= {"criterion": "cross_entropy"}
SENTENCES = {"task": "translation", "source_lang": "a", "target_lang": "b"}
SENTENCES |= {"max_source_positions": 8, "max_target_positions": 8}
# architecture, the string that fairseq evaluates, and further arguments
EVALUATED = [
    ("fconv", "encoder_layers", SENTENCES),
    ("fconv", "decoder_attention", SENTENCES),
    ("fconv_lm", "decoder_layers", LANGUAGE_MODEL),
    ("transformer_lm", "character_filters", LANGUAGE_MODEL | {"character_embeddings": True}),
    ("transformer", "adaptive_softmax_cutoff", SENTENCES),
]


@pytest.mark.parametrize(("arch", "flag", "arguments"), EVALUATED)
@pytest.mark.parametrize("defended", [True, False])
def test_code_in_a_configuration_is_not_run(arch, flag, arguments, defended, tmp_path, monkeypatch):
    dictionary, marker = Dictionary(), tmp_path / "run"
    dictionary.add_symbol("x")
    for name in ("dict.txt", "dict.a.txt", "dict.b.txt"):
        dictionary.save(str(tmp_path / name))
    code = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    padding = {"left_pad_source": True, "left_pad_target": False, "data": str(tmp_path)}
    write_checkpoint(tmp_path / "x.pt", {"arch": arch, **arguments, **padding, flag: code}, {})
    if not defended:  # the attack is one: fairseq alone runs the code, and then fails for its value
        for module in list(sys.modules.values()):
            if getattr(module, "__dict__", {}).get("eval") is literal:
                monkeypatch.setattr(module, "eval", eval)
    with pytest.raises(CheckpointError, match="not a number, text" if defended else r"x\.pt cannot be used"):
        checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "x.pt")])
    assert marker.exists() == (not defended)
