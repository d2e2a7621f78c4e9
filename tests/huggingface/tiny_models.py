"""A tiny model of every family, whose parameters are large enough to be missed, and a batch for every head."""

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from fairseq_poolingformer import huggingface
from fairseq_poolingformer.huggingface.families import family_of
from fairseq_poolingformer.weights import files
from tests.models import tiny_huggingface
from tests.weights.conftest import run

LEVELS = {"window_size": "3", "pooled_window_size": "8", "pooled_layers": "1-2", "pool_merge": "sum"}
WIDE = {"window_size": "64", "pooled_layers": "none"}
# one softmax over the tokens of a narrow window and pools of single tokens, which is full attention, too
MERGED = {
    "window_size": "2",
    "pooled_window_size": "all",
    "pool_merge": "softmax",
    "pool_type": "mean",
    "pool_stride": 1,
}

ENCODER = {"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4}
ENCODER |= {"intermediate_size": 40, "max_position_embeddings": 30, "type_vocab_size": 2}
ROBERTA = {**ENCODER, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
DISTILBERT = {"vocab_size": 50, "dim": 24, "n_layers": 3, "n_heads": 4, "hidden_dim": 40, "max_position_embeddings": 30}
MODERNBERT = {**ROBERTA, "num_attention_heads": 2, "local_attention": 10, "cls_token_id": 0, "sep_token_id": 2}
del MODERNBERT["type_vocab_size"]
MODERNBERT["attn_implementation"] = "sdpa"  # eager rounds to 32 bits
OTHER_MODERNBERT = {**MODERNBERT, "classifier_pooling": "mean", "attention_bias": True, "mlp_bias": True}
OTHER_MODERNBERT |= {"norm_bias": True, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
BART = {"vocab_size": 50, "d_model": 24, "encoder_layers": 3, "encoder_ffn_dim": 40, "encoder_attention_heads": 4}
BART |= {"decoder_layers": 2, "decoder_ffn_dim": 56, "decoder_attention_heads": 3, "max_position_embeddings": 30}
BART |= {"pad_token_id": 1, "decoder_start_token_id": 2, "eos_token_id": 2}
HEADS = ("Model", "ForMaskedLM", "ForMultipleChoice", "ForQuestionAnswering")
HEADS += ("ForSequenceClassification", "ForTokenClassification")
READERS = ("ForSequenceClassification", "ForQuestionAnswering")  # of encoders with decoders
WRITERS = ("Model", "ForConditionalGeneration")
CONFIGS = {  # model_type, and behind a - a variant -> the configuration's settings, and the ends of our classes' names
    "roberta": (ROBERTA, HEADS),
    "roberta-padded": ({**ROBERTA, "pad_token_id": 3}, HEADS),  # as rinna's Japanese one
    "camembert": (ROBERTA, HEADS),
    "bert": (ENCODER, HEADS),
    "electra": ({**ENCODER, "embedding_size": 16}, HEADS),
    "distilbert": (DISTILBERT, HEADS),
    "modernbert": (MODERNBERT, HEADS),
    "modernbert-other": (OTHER_MODERNBERT, HEADS),
    "bart": (BART, (*WRITERS, *READERS)),
    "mbart": ({**BART, "scale_embedding": True}, (*WRITERS, *READERS)),
}
ENCODERS = [kind for kind, (_, heads) in CONFIGS.items() if heads is HEADS]
LENGTHS = (20, 13, 6, 20)  # of a batch's rows


def ours(kind, head):
    return getattr(huggingface, f"Poolingformer{family_of(kind.partition('-')[0]).name}{head}")


def config(kind, **changes):
    """transformers' own."""
    model_type = kind.partition("-")[0]
    config_class = getattr(transformers, f"{family_of(model_type).short[model_type]}Config")
    return config_class(**{"attn_implementation": "eager", **CONFIGS[kind][0], **changes})


def short(kind, head="Model", **changes):
    """transformers' model in double precision, with random parameters."""
    torch.manual_seed(1)
    model = ours(kind, head).short_classes[kind.partition("-")[0]](config(kind, **changes)).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * (0.1 if "norm" in name.lower() else 0.2))
    return model


def enlarge(model, *parts):
    """Make the parameters of these parts, of level two if none is named, large enough to be missed."""
    torch.manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(part in name for part in parts or (".pooled_",)):
                parameter.add_(torch.randn_like(parameter) * 0.3)


def converted(path, kind, load, settings, parts=(".pooled_",), arguments=(), **changes):
    """Result of ``load`` for a random checkpoint of fairseq's, and the folder of transformers that it converts to."""
    source = tiny_huggingface.folder(path / "hf", kind, **changes)
    assert run("to-fairseq", source, path / "fairseq", *arguments) == 0
    checkpoint = path / "fairseq" / "model.pt"
    loaded = load(checkpoint, **settings)
    model = (loaded[0] if isinstance(loaded, tuple) else loaded).float()
    for part in parts:
        enlarge(model, part)
    stored, *_ = files.read_training(checkpoint)
    files.write_checkpoint(checkpoint, {**stored, **settings}, model.state_dict())
    assert run("to-huggingface", checkpoint, path / "long") == 0
    return loaded, path / "long"


def converted_back(folder, model, path):
    """Settings and checkpoint of a folder of transformers in fairseq: ``model``'s weights, bit for bit."""
    assert run("to-fairseq", folder, path / "back") == 0
    settings, state, _ = files.read_training(path / "back" / "model.pt")
    weights = model.state_dict()
    assert weights.keys() == state.keys()
    assert all(torch.equal(weights[name].to(state[name].dtype), state[name]) for name in weights)
    assert not any(tensor.dtype in (torch.float16, torch.bfloat16) for tensor in state.values())
    return settings, path / "back" / "model.pt"


def inputs(kind, head="Model", left=False):
    """A batch with padding, and the labels of a head, or what its decoder reads."""
    torch.manual_seed(2)
    pad, has_decoder = config(kind).pad_token_id, kind not in ENCODERS
    tokens = torch.randint(4, 50, (4, 20))
    labels, places = torch.randint(0, 2, (4, 20)), torch.arange(20).expand(4, 20)
    for row, length in enumerate(LENGTHS):
        tokens[row, length:], labels[row, length:] = pad, -100
        if has_decoder:
            tokens[row, length - 1] = 2
    batch = {"input_ids": tokens, "attention_mask": tokens.ne(pad).long()}
    if "type_vocab_size" in CONFIGS[kind][0]:
        batch["token_type_ids"] = places // 4 % 2
    if head in ("ForMaskedLM", "ForTokenClassification"):
        batch["labels"] = labels
    if left:
        batch = {name: rolled(x) for name, x in batch.items()}
    if head == "ForMultipleChoice":
        return {**{name: x.unflatten(0, (2, 2)) for name, x in batch.items()}, "labels": torch.tensor([0, 1])}
    if head == "ForSequenceClassification":
        batch["labels"] = torch.tensor([0, 1, 1, 0])
    if head == "ForQuestionAnswering":
        batch |= {"start_positions": torch.tensor([1, 2, 3, 4]), "end_positions": torch.tensor([4, 4, 4, 9])}
    if has_decoder and head in WRITERS:
        batch["decoder_input_ids" if head == "Model" else "labels"] = torch.randint(4, 50, (4, 9))
    return batch


def rolled(x):
    """Move the padding of (4, 20) or (4, 20, C) to the left."""
    return torch.stack([row.roll(20 - length, 0) for row, length in zip(x, LENGTHS, strict=True)])


def word_tokenizer(*words, **settings):
    """A tokenizer of these words, [UNK] among them, in the order of their ids."""
    backend = Tokenizer(WordLevel({word: row for row, word in enumerate(words)}, "[UNK]"))
    backend.pre_tokenizer = Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **settings)


def loss_of(output, real):
    """The loss, or of a model without one a sum over the decoder's states, or the real tokens'."""
    if "loss" in output:
        return output.loss
    states = output.last_hidden_state
    return (states[real] if states.shape[:2] == real.shape else states).sin().sum()


def trainer_arguments(folder, **settings):
    """Plain gradients, each loss logged, and nothing saved."""
    plain = {"max_grad_norm": 0.0, "lr_scheduler_type": "constant", "logging_steps": 1, "save_strategy": "no"}
    return transformers.TrainingArguments(folder, **plain, **settings, use_cpu=True, report_to=[], disable_tqdm=True)


def without_dropout(model):
    for module in model.modules():
        for name in ("p", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model
