"""A model's folder as transformers opens it where this package is missing: with the code of its classes.

``from_pretrained(folder, trust_remote_code=True)`` loads the Python files that ``auto_map`` of the folder's
``config.json`` names: one with the configuration, one with the models, made of this package's own modules.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from fairseq_poolingformer.huggingface.bundle import Bundle

PACKAGE = Path(__file__).resolve().parents[1]
BART = {"AutoModel": "Model", "AutoModelForSeq2SeqLM": "ForConditionalGeneration"}
ROBERTA = {
    "AutoModel": "Model",
    "AutoModelForMaskedLM": "ForMaskedLM",
    "AutoModelForQuestionAnswering": "ForQuestionAnswering",
    "AutoModelForSequenceClassification": "ForSequenceClassification",
    "AutoModelForTokenClassification": "ForTokenClassification",
}
MODERNBERT = {**ROBERTA, "AutoModelForMultipleChoice": "ForMultipleChoice"}
TASK_HEADS = ("ForCoreference", "ForHotpotqa", "ForNaturalQuestions", "ForWikihop")  # AutoModel in their own folders
CLASSES = {  # model_type -> the start of its classes' names, their module, and transformers' Auto class -> the end
    "poolingformer-bart": ("PoolingformerBart", "huggingface.bart", BART),
    "poolingformer-mbart": ("PoolingformerMBart", "huggingface.bart", BART),
    "poolingformer-modernbert": ("PoolingformerModernBert", "huggingface.modernbert", MODERNBERT),
    "poolingformer-roberta": ("PoolingformerRoberta", "huggingface.roberta", ROBERTA),
}
LEFT_OUT = {
    ("attention.backends.later", "FLEX"),
    ("attention.backends.later", "VARLEN"),
    ("attention.backends.triton.backend", ""),
    ("huggingface.packaged", "Packaged"),
    ("huggingface.peft_targets", "PeftAsks"),
}
DOCSTRING = '''\
"""{start} for transformers: {what}.

Generated from fairseq-poolingformer (MIT license), which has the same models with Triton's kernels, and trains,
converts and lengthens them. A comment names the module that the definitions after it come from.
"""

'''


def auto_map(model_type: str, architecture: str = "") -> dict[str, str]:
    """Return ``auto_map`` of ``config.json``: transformers' Auto class -> file and class.

    Args:
        model_type: of the configuration.
        architecture: the class of the model; one with a task's head is alone in its folder.
    """
    start, _, ends = _classes(model_type, architecture)
    configuration, modeling = _file_names(model_type)
    models = {auto: f"{modeling}.{start}{end}" for auto, end in ends.items()}
    return {"AutoConfig": f"{configuration}.{start}Config", **models}


def write(folder: Path, model_type: str, architecture: str = "") -> None:
    """Write the files of a model into its folder, which must exist; arguments as :func:`auto_map`'s."""
    for name, text in files(model_type, architecture).items():
        (folder / name).write_text(text, encoding="utf-8")


@cache
def files(model_type: str, architecture: str = "") -> dict[str, str]:
    """Return the files of a model, name -> contents; arguments as :func:`auto_map`'s."""
    start, module, ends = _classes(model_type, architecture)
    configuration, modeling = _file_names(model_type)
    wanted = {
        configuration: [("huggingface.configuration", f"{start}Config")],
        modeling: [(module, start + end) for end in ends.values()],
    }
    bundle, whats = Bundle(PACKAGE, wanted, LEFT_OUT), ("the configuration", "the models and their attention")
    return {
        f"{file}.py": DOCSTRING.format(start=start, what=what) + bundle.text(file)
        for file, what in zip(wanted, whats, strict=True)
    }


def _classes(model_type: str, architecture: str) -> tuple[str, str, dict[str, str]]:
    """Return what CLASSES says, or of a model with a task's head its class alone."""
    start, module, ends = CLASSES[model_type]
    end = architecture.removeprefix(start)
    return (start, "huggingface.task_heads", {"AutoModel": end}) if end in TASK_HEADS else (start, module, ends)


def _file_names(model_type: str) -> tuple[str, str]:
    name = model_type.replace("-", "_")
    return f"configuration_{name}", f"modeling_{name}"
