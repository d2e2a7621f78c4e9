"""Every family of models through the converter: the outputs of transformers' models, and back bit for bit."""

import argparse
import re
from dataclasses import dataclass, field

import pytest
import torch
from fairseq import options
from safetensors.torch import load_file, save_file
from transformers import (
    BartForSequenceClassification,
    DebertaForSequenceClassification,
    DebertaModel,
    LongformerForMultipleChoice,
    LongformerModel,
    RobertaForMultipleChoice,
    RobertaModel,
)

from fairseq_poolingformer.tasks.question_answering.head import QuestionAnsweringHead
from fairseq_poolingformer.weights import ConversionError, files
from fairseq_poolingformer.weights.convert import to_fairseq
from tests.models import tiny_huggingface
from tests.weights import encoders, seq2seq
from tests.weights.conftest import assert_same_checkpoints, back_in_huggingface, converted, run

SEQ2SEQ = ("bart", "mbart", "led")
FULL = {"window_size": "21,30,64", "pooled_layers": "none"}  # of 22 tokens, the last is 21 from the first
TWO_TYPES = {"position_biased_input": True, "type_vocab_size": 2, "layer_norm_eps": 1e-3}


@dataclass(frozen=True)
class Case:
    """A model of transformers: changes of its tiny configuration, and how fairseq is to hold it."""

    model_type: str
    changes: dict = field(default_factory=dict)
    arch: str | None = None
    settings: dict = field(default_factory=dict)
    returns: bool = True  # whether the way back gives the same folder

    def __str__(self):
        return " ".join(map(str, (self.model_type, self.arch or "", self.changes or "")))

    def convert(self, path):
        """The checkpoint that is made from a folder."""
        arch = ("--arch", self.arch) if self.arch else ()
        return converted(path, self.model_type, *arch, **self.changes)[1]


CASES = [
    Case("bart"),
    Case("bart", {"scale_embedding": True}),
    Case("bart", arch="poolingformer_bart_base", settings=FULL, returns=False),
    Case("bart", {"scale_embedding": True}, "poolingformer_bart_base", FULL, returns=False),
    Case("mbart"),
    Case("mbart", {"scale_embedding": True}),
    Case("led"),
    Case("led", {"attention_window": 4}, returns=False),  # comes back as a list
    Case("roberta"),
    Case("roberta", {"type_vocab_size": 2}, returns=False),
    Case("roberta", arch="poolingformer_roberta_base", settings=FULL, returns=False),
    Case("longformer"),
    Case("deberta"),
    Case("deberta", {"pos_att_type": "c2p"}),
    Case("deberta", {"pos_att_type": ["p2c"], "legacy": False}, returns=False),
    Case("deberta", {"max_relative_positions": 6}),  # distances beyond share the outermost rows
    Case("deberta", {"position_biased_input": True, "max_relative_positions": 9}),
    Case("deberta", TWO_TYPES, returns=False),
    Case("deberta", {"type_vocab_size": 2}, returns=False),  # and no absolute positions to add type 0 to
    Case("deberta", arch="poolingformer_deberta_large", settings={"window_size": "21,all,40"}, returns=False),
]


def assert_same_outputs(case, path, theirs, **settings):
    if case.model_type in SEQ2SEQ:
        model, _ = seq2seq.load_fairseq(path, **settings)
        for count in (1, 3, 0) if case.model_type == "led" else (0,):
            model.encoder.global_tokens = count
            seq2seq.assert_models_agree(model, theirs, count)
        return
    model = encoders.load(path, **settings)
    if case.model_type != "longformer":
        for lengths in (encoders.LENGTHS,) if settings else (encoders.LENGTHS, (46, 1, 31)):
            encoders.assert_agree(model, theirs, encoders.batch(lengths))
        return
    for lengths in (encoders.LENGTHS, (29, 5, 17), (46, 46, 46)):  # windows of 4, 12 and 6 tokens
        tokens = encoders.batch(lengths)
        for positions in (([0],) * 3, ([0, 1, 2, 15, 21], [2], [0, 1, 4]), ([7], [], [0, 5]), ([],) * 3):
            encoders.assert_agree(model, theirs, tokens, encoders.globals_at(tokens, *positions))


@pytest.mark.parametrize("case", [case for case in CASES if not case.returns], ids=str)
def test_outputs_are_those_of_hugging_face(tmp_path, case):
    """The others are compared after their way back, below."""
    path = case.convert(tmp_path)
    theirs = tiny_huggingface.model(case.model_type, **case.changes)
    assert_same_outputs(case, path, theirs, **case.settings)


@pytest.mark.parametrize("case", [case for case in CASES if case.returns], ids=str)
def test_round_trip_is_bit_identical(tmp_path, case):
    source = tiny_huggingface.folder(tmp_path / "hf", case.model_type, **case.changes)
    whole = load_file(source / "model.safetensors")
    for name in [name for name in whole if "token_type" in name]:  # which fairseq adds to the positions
        whole[name] = torch.zeros_like(whole[name])
    save_file(whole, source / "model.safetensors", {"format": "pt"})
    assert run("to-fairseq", source, tmp_path / "fairseq") == 0
    path = tmp_path / "fairseq" / "model.pt"
    before = tiny_huggingface.MODELS[case.model_type].from_pretrained(source)
    after = back_in_huggingface(path, case.model_type)
    torch.testing.assert_close(after.state_dict(), before.state_dict(), rtol=0, atol=0)
    if case.model_type != "deberta":  # whose configurations are written in several forms
        different = {k for k, v in after.config.to_dict().items() if before.config.to_dict().get(k) != v}
        assert different <= {"_name_or_path", "forced_eos_token_id", "decoder_start_token_id"}
    assert_same_outputs(case, path, after)

    assert run("to-fairseq", tmp_path / "back", tmp_path / "again") == 0
    dictionary = "dict.source.txt" if case.model_type in SEQ2SEQ else "dict.txt"
    names = (dictionary, "flags.txt", "tokenizer/encoder.json", "tokenizer/vocab.bpe")
    assert_same_checkpoints(path, tmp_path / "again" / "model.pt", names=names)


@pytest.mark.parametrize(
    "case",
    [
        # fairseq has no flag for scale_embedding
        *(case for case in CASES if case.arch or "scale_embedding" not in case.changes),
        Case("bart", {"activation_function": "gelu_new", "dropout": 0.2}),
        Case("led", {"dropout": 0.2}, "led_bart_large"),
        Case("led", arch="poolingformer_bart_tiny"),
        Case("roberta", {"hidden_dropout_prob": 0.2}, "poolingformer_roberta_large"),
        Case("longformer", {"hidden_dropout_prob": 0.2}, "longformer_roberta_large"),
        Case("longformer", arch="poolingformer_roberta_tiny"),
    ],
    ids=str,
)
def test_flags_build_the_model_of_the_checkpoint(tmp_path, case):
    path = case.convert(tmp_path)
    settings, *_ = files.read_training(path)
    flags = (path.parent / "flags.txt").read_text().split()
    assert "--task" not in flags
    parsed = vars(options.parse_args_and_arch(options.get_training_parser(), [str(tmp_path), *flags]))
    del settings["task"], settings["data"]
    assert {key: parsed.get(key, 0) for key in settings} == settings  # fairseq fills in some zeros only later


@pytest.mark.parametrize("case", [Case("bart"), Case("longformer")], ids=str)
def test_a_trained_checkpoint(tmp_path, capsys, case):
    """Training writes "cfg" in place of "args", and fairseq's BART drops the row of <mask> for tasks without it."""
    path = case.convert(tmp_path)
    settings, state, _ = files.read_training(path)
    del settings["data"]
    if case.model_type == "bart":
        languages = {"source_lang": "source", "target_lang": "target"}
        model, _ = seq2seq.load_fairseq(path, task="translation", **languages)
        state = model.state_dict()
        assert len(state["encoder.embed_tokens.weight"]) == seq2seq.ROWS - 1
    trained = tmp_path / "runs" / "checkpoint_best.pt"
    trained.parent.mkdir()
    torch.save({"args": None, "cfg": {"model": argparse.Namespace(**settings)}, "model": state}, trained)
    assert run("to-huggingface", trained, tmp_path / "back") == 1
    assert "--tokenizer" in capsys.readouterr().err
    assert run("to-huggingface", trained, tmp_path / "back", "--tokenizer", path.parent / "tokenizer") == 0
    back = tiny_huggingface.MODELS[case.model_type].from_pretrained(tmp_path / "back").eval()
    if case.model_type == "bart":
        seq2seq.assert_models_agree(model, back)
    else:
        assert_same_outputs(case, path, back)


@pytest.mark.parametrize(
    ("model_type", "cls"),
    [
        ("roberta", RobertaModel),
        ("roberta", RobertaForMultipleChoice),
        ("longformer", LongformerModel),
        ("longformer", LongformerForMultipleChoice),
        ("deberta", DebertaModel),
        ("deberta", DebertaForSequenceClassification),
        ("bart", BartForSequenceClassification),
    ],
)
def test_models_with_another_head_or_none(tmp_path, capsys, model_type, cls):
    source = tiny_huggingface.folder(tmp_path / "hf", model_type, cls)
    has_head = "For" in cls.__name__
    if has_head:
        assert run("to-fairseq", source, tmp_path / "fairseq") == 1
        assert "--drop-heads" in capsys.readouterr().err
        assert not (tmp_path / "fairseq").exists()
    assert run("to-fairseq", source, tmp_path / "fairseq", *["--drop-heads"] * has_head) == 0
    printed = capsys.readouterr().out
    if model_type == "bart":
        assert "left out heads: classification_head.dense.bias" in printed
        return
    assert "a random one is filled in" in printed
    tokens = encoders.batch()
    mask = encoders.globals_at(tokens, [0], [0], [0]) if model_type == "longformer" else None
    theirs = tiny_huggingface.model(model_type, cls)
    encoders.assert_agree(encoders.load(tmp_path / "fairseq" / "model.pt"), theirs, tokens, mask, head=False)


def test_a_rate_that_fairseq_writes_as_a_whole_number_opens_in_transformers(tmp_path):
    """fairseq-train saves ``encoder_layerdrop`` as the integer 0, which transformers' configurations refuse."""
    _, path = converted(tmp_path, "bart")
    settings, state, _ = files.read_training(path)
    files.write_checkpoint(path, {**settings, "encoder_layerdrop": 0, "dropout": 0}, state)
    back_in_huggingface(path, "bart")


# ----- Poolingformers


def poolingformer(tmp_path, model_type, **settings):
    """A Poolingformer with random level two made from a tiny BART or RoBERTa: checkpoint, settings and model."""
    _, path = converted(tmp_path, model_type, "--arch", f"poolingformer_{model_type}_base")
    model = load(path, model_type, **settings).float()
    settings = {**files.read_training(path)[0], **settings}
    files.write_checkpoint(path, settings, model.state_dict())
    return path, settings, model


def load(path, model_type, **settings):
    return seq2seq.load_fairseq(path, **settings)[0] if model_type == "bart" else encoders.load(path, **settings)


LONG = [("bart", "led", "3", [6, 6, 6]), ("roberta", "longformer", "3,9,3", [6, 18, 6])]


@pytest.mark.parametrize(("model_type", "long", "windows", "two_sided"), LONG)
def test_without_level_two_it_is_a_longformer_with_copied_projections(
    tmp_path, capsys, model_type, long, windows, two_sided
):
    path, _, model = poolingformer(tmp_path, model_type, window_size=windows, pooled_layers="none", global_tokens=2)
    back, printed = back_in_huggingface(path, long), capsys.readouterr().out
    assert "filled in as copies" in printed
    assert "global_tokens is 2" in printed
    assert back.config.attention_window == two_sided
    if model_type == "bart":
        attention = back.led.encoder.layers[0].self_attn.longformer_self_attn
        assert torch.equal(attention.query.weight, attention.query_global.weight)
        assert attention.query.weight.data_ptr() != attention.query_global.weight.data_ptr()
        seq2seq.assert_models_agree(model, back, global_tokens=2)
        return
    tokens = torch.nn.functional.pad(encoders.batch(), (0, 14), value=1)  # a multiple of the largest window
    mask = encoders.globals_at(tokens, [0, 1], [0, 1], [0, 1])
    encoders.assert_agree(model.double(), back, tokens, mask)


@pytest.mark.parametrize(("model_type", "long"), [("bart", "led"), ("roberta", "longformer")])
def test_level_two_and_heads_are_left_out_only_on_demand(tmp_path, capsys, model_type, long):
    settings = {"window_size": "4", "pooled_window_size": "8", "pooled_layers": "1-2"}
    path, settings, model = poolingformer(tmp_path, model_type, **settings)
    dropped = ["--drop-pooled"]
    assert run("to-huggingface", path, tmp_path / "back", "--model-type", long) == 1
    assert "pooled_layers 1-2" in capsys.readouterr().err
    if model_type == "roberta":
        model.register_head("question_answering", QuestionAnsweringHead(model.args.encoder_embed_dim))
        files.write_checkpoint(path, settings, model.state_dict())
        assert run("to-huggingface", path, tmp_path / "back", *dropped) == 1
        error = capsys.readouterr().err
        assert "--task question_answering" in error
        assert "--drop-heads" in error
        dropped.append("--drop-heads")
    assert not (tmp_path / "back").exists()
    back = back_in_huggingface(path, long, *dropped)
    assert "layers.1.self_attn.pooled_k_pool_weight" in capsys.readouterr().out
    level_one = {name: tensor for name, tensor in model.state_dict().items() if ".pooled_" not in name}
    files.write_checkpoint(path, {**settings, "pooled_layers": "none"}, level_one)

    if model_type == "bart":
        seq2seq.assert_models_agree(load(path, model_type), back, global_tokens=1)
    else:
        tokens = encoders.batch()
        encoders.assert_agree(load(path, model_type), back, tokens, encoders.globals_at(tokens, [0], [0], [0]))


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """A RoBERTa and a DeBERTa: the file, its settings and parameters."""
    path, settings, model = poolingformer(tmp_path_factory.mktemp("roberta"), "roberta", pooled_layers="none")
    _, deberta = converted(tmp_path_factory.mktemp("deberta"), "deberta")
    return {"roberta": (path, settings, model.state_dict()), "deberta": (deberta, *files.read_training(deberta)[:2])}


ROBERTA = ("--model-type", "roberta")
C2P = r"the model has relative attention \(c2p,p2c\)[^\n]*--model-type deberta"


@pytest.mark.parametrize(
    ("model_type", "settings", "arguments", "message"),
    [
        ("roberta", {"window_size": "4,1,4"}, (), "window_size 4,1,4: Hugging Face needs at least 2"),
        ("roberta", {"separate_global_projections": True}, ROBERTA, "--model-type longformer"),
        ("roberta", {"encoder_normalize_before": True}, (), "encoder_normalize_before is True"),
        ("roberta", {"arch": "transformer_lm"}, (), "architecture is transformer_lm"),
        ("roberta", {}, (), "no window_size"),
        ("roberta", {"window_size": "4"}, ("--model-type", "led"), "settings lack"),
        ("deberta", {"window_size": "9"}, (), "window_size is 9"),
        ("deberta", {"global_tokens": 1, "global_relative_positions": 4}, (), "coarse relative positions"),
        ("deberta", {"pooled_layers": "1"}, (), "--drop-pooled"),
        ("deberta", {"relative_attention": "none"}, (), "choose another --model-type"),
        *(("deberta", {}, ("--model-type", name), C2P) for name in ("roberta", "xlm-roberta", "longformer")),
    ],
)
def test_what_hugging_face_cannot_express_is_refused(
    tmp_path, capsys, checkpoints, model_type, settings, arguments, message
):
    path, stored, state = checkpoints[model_type]
    if model_type == "deberta":
        arguments = arguments or ("--model-type", model_type)
    files.write_checkpoint(path, {**stored, **settings}, state)
    assert run("to-huggingface", path, tmp_path / "back", *arguments) == 1
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "back").exists()


def test_a_window_that_led_cannot_have(tmp_path, capsys):
    path, _, model = poolingformer(tmp_path, "bart", window_size="22", pooled_layers="none")
    assert run("to-huggingface", path, tmp_path / "back") == 1
    assert "--model-type bart" in capsys.readouterr().err
    back = back_in_huggingface(path, "bart", "--model-type", "bart")
    assert "window_size is not kept" in capsys.readouterr().out
    seq2seq.assert_models_agree(model, back)


# ----- refusals

SHARED = "model.shared.weight"


@pytest.mark.parametrize(
    ("model_type", "change", "message"),
    [
        (
            "bart",
            lambda state: {"model.decoder.layers.1.fc2.bias": None},
            r"missing: decoder\.layers\.1\.fc2\.bias; unexpected: none",
        ),
        (
            "bart",
            lambda state: {"model.encoder.layer_norm.weight": torch.ones(24)},
            r"missing: none; unexpected: encoder\.layer_norm\.weight",
        ),
        ("bart", lambda state: {"lm_head.weight": state[SHARED] + 1}, r"shared\.weight and lm_head\.weight differ"),
        ("bart", lambda state: {"final_logits_bias": torch.ones(1, seq2seq.ROWS)}, "final_logits_bias is not zero"),
        ("bart", lambda state: {"shared.weight": state[SHARED]}, "with and without 'model.': shared.weight"),
        ("bart", {"max_position_embeddings": 42}, r"embed_positions\.weight is \(42, 24\) .* asks for \(44, 24\)"),
        ("bart", {"model_type": "t5"}, "model_type is 't5'; can convert: bart, mbart, led"),
        ("bart", {"activation_function": "swiglu"}, "activation_function 'swiglu'"),
        ("bart", {"normalize_before": True}, "normalize_before is True"),
        ("bart", {"pad_token_id": 5}, "pad_token_id is 5"),
        ("mbart", {"normalize_before": False}, "normalize_before is False; fairseq's BART needs True"),
        *(("led", {"attention_window": window}, "attention_window") for window in (5, [4, 8], [4, 8, 0])),
        (
            "roberta",
            lambda state: {"lm_head.dense.bias": None, "roberta.encoder.layer.2.output.dense.bias": None},
            r"missing: encoder\.layer\.2\.output\.dense\.bias, lm_head\.dense\.bias;",
        ),
        (
            "roberta",
            lambda state: {"lm_head.decoder.weight": torch.ones(encoders.ROWS, 24)},
            r"word_embeddings\.weight and lm_head\.decoder\.weight differ",
        ),
        ("roberta", {"hidden_act": "relu"}, "hidden_act is 'relu'; fairseq's RoBERTa needs 'gelu'"),
        ("roberta", {"layer_norm_eps": 1e-12}, "layer_norm_eps is 1e-12"),
        ("roberta", {"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ("roberta", {"pad_token_id": 0}, "pad_token_id is 0"),
        ("roberta", {"max_position_embeddings": 60}, r"embed_positions\.weight is \(48, 24\) .* asks for \(60, 24\)"),
        ("roberta", {"is_decoder": True}, "is_decoder is True"),
        ("deberta", {"talking_head": True}, "talking_head is True"),
        ("deberta", {"relative_attention": False}, "relative_attention is False"),
        ("deberta", {"pos_att_type": ["p2p"]}, "pos_att_type is"),
        ("deberta", {"embedding_size": 12}, "embedding_size differs"),
        ("deberta", {"num_attention_heads": 5}, "5 heads"),
        ("deberta", {"position_biased_input": True}, "missing: embeddings.position_embeddings.weight"),
    ],
)
def test_what_fairseq_cannot_express_is_refused(model_type, change, message):
    model = tiny_huggingface.model(model_type)
    state, config = dict(model.state_dict()), model.config.to_dict()
    if isinstance(change, dict):
        config |= change
    else:
        state = {name: tensor for name, tensor in {**state, **change(state)}.items() if tensor is not None}
    with pytest.raises(ConversionError, match=message):
        to_fairseq(config, state)


def test_an_architecture_of_another_family_is_refused():
    model = tiny_huggingface.model("roberta")
    with pytest.raises(ConversionError, match="poolingformer_bart_base cannot hold a roberta"):
        to_fairseq(model.config.to_dict(), dict(model.state_dict()), arch="poolingformer_bart_base")
