"""The pipelines for summaries, other texts from texts, and answers in texts, which transformers 5 no longer has.

Importing this registers ``pipeline("summarization")``, ``("text2text-generation")`` and ``("question-answering")`` with
transformers, for this project's models and its own. They give what transformers 4.57 gave of the same models, which
``run_scripts/test_pipelines.sh`` compares, but that a model's own ``num_beams`` counts, in place of which 4.57 took 4.
:func:`summarize` and :func:`answer` are the same in one call.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import torch
import transformers
from torch import Tensor
from transformers import AutoModelForQuestionAnswering, AutoModelForSeq2SeqLM, AutoTokenizer, Pipeline, PreTrainedModel
from transformers.pipelines import PIPELINE_REGISTRY
from transformers.pipelines.base import ChunkPipeline

from fairseq_poolingformer.huggingface.spans import best_spans, characters

logger = logging.getLogger(__name__)

TOKENS, STRIDE = 384, 128  # of a short model's segment, and shared by two segments
SPARE = 10  # candidates for the best answers, some of which become the same words


class _OfText(Pipeline):
    """A pipeline that has a tokenizer and no other processor."""

    _load_tokenizer = True
    _load_processor = _load_image_processor = _load_feature_extractor = False


class TextToTextPipeline(_OfText):
    """``pipeline("text2text-generation")``: a text from a text, by a model with an encoder and a decoder.

    It takes a text or a list of them, and ``generate``'s arguments; ``truncation=True`` cuts texts to what the
    tokenizer's ``model_max_length`` and the model take. It gives ``[{"generated_text": …}]`` for a text, a list of such
    dictionaries for a list, and with ``return_tensors=True`` ``"generated_token_ids"`` instead.

    Raises:
        ValueError: the model has no decoder.
    """

    return_name: ClassVar = "generated"
    defaults: ClassVar = {"max_new_tokens": 256, "num_beams": 4}  # of models that do not have their own

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        model = self.model
        if not (model.can_generate() and model.config.is_encoder_decoder):
            raise ValueError(f"a {type(model).__name__} writes no text from a text: load it by AutoModelForSeq2SeqLM")
        of_task = dict((getattr(model.config, "task_specific_params", None) or {}).get(self.task, {}))
        self.prefix = of_task.pop("prefix", getattr(model.config, "prefix", None)) or ""
        self.of_model = {**model.generation_config.to_diff_dict(), **of_task}
        self.longest = min(self.tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", 10**30))

    def _sanitize_parameters(
        self,
        truncation: bool | str | None = None,
        return_tensors: bool | None = None,
        clean_up_tokenization_spaces: bool | None = None,
        **generation: Any,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        reading = {"truncation": truncation}
        writing = {"as_tokens": return_tensors, "clean_up_tokenization_spaces": clean_up_tokenization_spaces}
        reading, writing = ({k: x for k, x in group.items() if x is not None} for group in (reading, writing))
        return reading, generation, writing

    def __call__(self, texts: str | list[str], **kwargs: Any) -> list[Any]:
        found = super().__call__(texts, **kwargs)
        flat = isinstance(texts, list) and all(len(of_text) == 1 for of_text in found)
        return [of_text[0] for of_text in found] if flat else found

    def preprocess(self, text: str, truncation: bool | str = False) -> dict[str, Tensor]:
        longest = self.longest if truncation else None
        found = self.tokenizer(self.prefix + text, truncation=truncation, max_length=longest, return_tensors="pt")
        found.pop("token_type_ids", None)  # which generate does not take
        return found

    def _forward(self, inputs: dict[str, Tensor], **generation: Any) -> dict[str, Tensor]:
        if "generation_config" not in generation:
            generation = {**self._defaults(generation), **generation}
        written = self.model.generate(**inputs, **generation)
        return {"written": written.unflatten(0, (len(inputs["input_ids"]), -1))}

    def _defaults(self, given: dict[str, Any]) -> dict[str, Any]:
        """What is not in a call's arguments, without what they replace."""
        defaults = {**self.defaults, "pad_token_id": self.tokenizer.pad_token_id, **self.of_model}
        if "max_length" in self.of_model or "max_length" in given:
            defaults.pop("max_new_tokens")
        return defaults

    def postprocess(
        self, outputs: dict[str, Tensor], as_tokens: bool = False, clean_up_tokenization_spaces: bool = False
    ) -> list[dict[str, Any]]:
        if as_tokens:
            return [{f"{self.return_name}_token_ids": tokens} for tokens in outputs["written"][0]]
        options = {"skip_special_tokens": True, "clean_up_tokenization_spaces": clean_up_tokenization_spaces}
        return [{f"{self.return_name}_text": self.tokenizer.decode(x, **options)} for x in outputs["written"][0]]


class SummarizationPipeline(TextToTextPipeline):
    """``pipeline("summarization")``: as :class:`TextToTextPipeline`, with ``"summary_text"``."""

    return_name = "summary"


class QuestionAnsweringPipeline(_OfText, ChunkPipeline):
    """``pipeline("question-answering")``: the words of a context that answer a question.

    Call it with ``question=`` and ``context=``, texts or lists of them, or with dictionaries of both. A context too
    long for the model is read in segments. Its answers are ``{"score": …, "start": …, "end": …, "answer": …}``, start
    and end in characters of the context: the best one, or with ``top_k`` a list.
    """

    def _sanitize_parameters(
        self,
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
        padding: bool | str | None = None,
        top_k: int | None = None,
        max_answer_len: int | None = None,
        handle_impossible_answer: bool | None = None,
        align_to_words: bool | None = None,
        no_answer_score: bool | None = None,
        **others: Any,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Sort the arguments of a call.

        Args:
            max_seq_len: tokens of a segment, the question included; 384 by default, and of this project's models as
                many as the model takes.
            doc_stride: tokens that two segments share; 128 by default.
            padding: as the tokenizer's.
            top_k: how many answers.
            max_answer_len: tokens of an answer; 15 by default.
            handle_impossible_answer: the empty answer is one of the candidates.
            align_to_words: answers are whole words; true by default.
            no_answer_score: also give the probability that there is none, the least of all segments.

        Raises:
            ValueError: a number is not positive, or an argument is unknown.
        """
        others = {name for name in others if name not in ("max_question_len", "question", "context")}
        if others:
            raise ValueError(f"question-answering has no argument {', '.join(sorted(others))}")
        for name, value in {"top_k": top_k, "max_answer_len": max_answer_len}.items():
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        reading = {"max_seq_len": max_seq_len, "doc_stride": doc_stride, "padding": padding}
        writing = {"top_k": top_k, "max_answer_len": max_answer_len, "align_to_words": align_to_words}
        writing |= {"handle_impossible_answer": handle_impossible_answer, "no_answer_score": no_answer_score}
        reading, writing = ({k: x for k, x in group.items() if x is not None} for group in (reading, writing))
        return reading, {}, writing

    def __call__(
        self,
        examples: Any = None,
        *,
        question: str | list[str] | None = None,
        context: str | list[str] | None = None,
        **kwargs: Any,
    ) -> Any:
        if examples is None:
            questions = [question] if isinstance(question, str) else question
            contexts = [context] * len(questions or ()) if isinstance(context, str) else context
            if not questions or not contexts or len(questions) != len(contexts):
                raise ValueError("give a question and a context, or as many of one as of the other")
            examples = [{"question": q, "context": c} for q, c in zip(questions, contexts, strict=True)]
        if isinstance(examples, list) and len(examples) == 1:
            examples = examples[0]
        return super().__call__(examples, **kwargs)

    def preprocess(
        self,
        example: dict[str, str],
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
        padding: bool | str = False,
    ) -> Iterator[dict[str, Any]]:
        question, context = example.get("question"), example.get("context")
        if not question or not context:
            raise ValueError("an example needs a question and a context, {'question': …, 'context': …}, and both text")
        if not self.tokenizer.is_fast:
            raise ValueError("a question is answered with a fast tokenizer only: load it with use_fast=True")
        own = getattr(self.model, "max_tokens", getattr(self.model.base_model, "max_tokens", TOKENS))
        longest = max_seq_len or min(self.tokenizer.model_max_length, own)
        stride = min(longest // 2, STRIDE) if doc_stride is None else doc_stride
        if stride >= longest:
            raise ValueError(f"doc_stride must be less than the {longest} tokens of a segment, got {stride}")
        is_second = self.tokenizer.padding_side == "right"
        segments = self.tokenizer(
            *((question, context) if is_second else (context, question)),
            truncation="only_second" if is_second else "only_first",
            max_length=longest,
            stride=stride,
            padding=padding,
            return_overflowing_tokens=True,
        )
        for number, tokens in enumerate(segments["input_ids"]):
            names = [name for name in self.tokenizer.model_input_names if name in segments]
            yield {
                **{name: torch.tensor(segments[name][number])[None] for name in names},
                "context": context,
                "encoding": segments[number],
                "in_context": [
                    place == is_second or token == self.tokenizer.cls_token_id
                    for place, token in zip(segments.sequence_ids(number), tokens, strict=True)
                ],
                "is_last": number == len(segments["input_ids"]) - 1,
            }

    def _forward(self, inputs: dict[str, Any]) -> dict[str, Any]:
        given = {name: x for name, x in inputs.items() if isinstance(x, Tensor)}
        if "use_cache" in inspect.signature(self.model.forward).parameters:
            given["use_cache"] = False
        output = self.model(**given)
        return {**inputs, "start": output["start_logits"], "end": output["end_logits"]}

    def postprocess(
        self,
        segments: list[dict[str, Any]],
        top_k: int = 1,
        max_answer_len: int = 15,
        handle_impossible_answer: bool = False,
        align_to_words: bool = True,
        no_answer_score: bool = False,
    ) -> dict[str, Any] | list[dict[str, Any]]:
        answers: dict[str, dict[str, Any]] = {}
        least = 1.0
        for segment in segments:
            count = 2 * top_k + SPARE if align_to_words else top_k
            number = len(segment["in_context"])  # more were padded to a batch
            its = slice(-number, None) if self.tokenizer.padding_side == "left" else slice(number)
            logits = segment["start"][0, its], segment["end"][0, its]
            spans, none = best_spans(*logits, segment["in_context"], count=count, longest=max_answer_len)
            least = min(least, none)
            for first, last, score in spans:
                start, end = characters(segment["encoding"], first, last, align_to_words)
                text = segment["context"][start:end]
                new = {"score": 0.0, "start": start, "end": end, "answer": text}
                answers.setdefault(text.lower(), new)["score"] += score
        found = list(answers.values())
        if handle_impossible_answer:
            found.append({"score": least, "start": 0, "end": 0, "answer": ""})
        found = sorted(found, key=lambda answer: answer["score"], reverse=True)[:top_k]
        found = [{**each, "no_answer_score": least} for each in found] if no_answer_score else found
        return found[0] if len(found) == 1 else found


def summarize(texts: str | Sequence[str], model: Any, *, tokenizer: Any = None, **options: Any) -> list[str]:
    """Summarize texts, each as far as the model reads; a warning says what it does not read.

    Args:
        texts: documents; one string is one document.
        model: a loaded model, or its folder or name.
        tokenizer: the model's; None for the one of its folder.
        options: ``device``, ``batch_size``, and arguments of ``generate``.

    Returns:
        A summary of each text.
    """
    texts = [texts] if isinstance(texts, str) else list(texts)
    pipe = _pipeline("summarization", model, tokenizer, options.pop("device", None))
    for number, text in enumerate(texts):
        if (count := len(pipe.tokenizer(text)["input_ids"])) > pipe.longest:
            logger.warning("text %d has %d tokens; the model reads the first %d", number, count, pipe.longest)
    return [found["summary_text"] for found in (pipe(texts, truncation=True, **options) if texts else ())]


def answer(
    question: str | Sequence[str], context: str, model: Any, *, tokenizer: Any = None, **options: Any
) -> dict[str, Any] | list[dict[str, Any]]:
    """Answer a question, or several, by words of a context of any length.

    Args:
        question: one, or a list.
        context: the text with the answer.
        model: a loaded model, or its folder or name.
        tokenizer: the model's; None for the one of its folder.
        options: ``device``, ``batch_size`` (segments at a time), and arguments of :class:`QuestionAnsweringPipeline`.

    Returns:
        For each question ``answer`` with its ``start``, ``end`` and ``score``, and ``no_answer_score``; an empty answer
        where that score is higher.
    """
    pipe = _pipeline("question-answering", model, tokenizer, options.pop("device", None))
    options = {"handle_impossible_answer": True, "no_answer_score": True, **options}
    if isinstance(question, str):
        return pipe(question=question, context=context, **options)
    found = pipe(question=list(question), context=context, **options)
    return [found] if len(question) == 1 else found


def _pipeline(task: str, model: Any, tokenizer: Any, device: Any) -> Pipeline:
    place = model.name_or_path if isinstance(model, PreTrainedModel) else model
    tokenizer = AutoTokenizer.from_pretrained(place) if tokenizer is None else tokenizer
    return transformers.pipeline(task, model=model, tokenizer=tokenizer, device=device)


PIPELINES = {  # task -> pipeline, class of its models, and the model where none is named
    "summarization": (SummarizationPipeline, AutoModelForSeq2SeqLM, ("sshleifer/distilbart-cnn-12-6", "a4f8f3e")),
    "text2text-generation": (TextToTextPipeline, AutoModelForSeq2SeqLM, ("google-t5/t5-base", "a9723ea")),
    "question-answering": (
        QuestionAnsweringPipeline,
        AutoModelForQuestionAnswering,
        ("distilbert/distilbert-base-cased-distilled-squad", "564e9b5"),
    ),
}

for task, (implementation, model_class, default) in PIPELINES.items():
    getattr(transformers.pipelines, "REMOVED_TASKS", {}).pop(task, None)
    if task not in PIPELINE_REGISTRY.supported_tasks:
        PIPELINE_REGISTRY.register_pipeline(task, implementation, model_class, {"model": default}, "text")
