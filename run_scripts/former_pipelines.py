"""Compare ``fairseq_poolingformer.huggingface.pipelines`` with the pipelines of transformers 4.57; test_pipelines.sh.

python run_scripts/former_pipelines.py make FOLDER            # small models with random weights, and their tokenizers
python run_scripts/former_pipelines.py run FOLDER NAME.json   # what the pipelines of this environment give
python run_scripts/former_pipelines.py compare OLD.json NEW.json
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<mask>"]
SMALL = {"vocab_size": 400, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
SIDES = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in (("layers", 2), ("attention_heads", 2))}
BART = {**SMALL, **SIDES, "d_model": 32, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "init_std": 0.3}
T5 = {**SMALL, "d_model": 32, "d_kv": 16, "d_ff": 48, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0}
BERT = {"vocab_size": 400, "pad_token_id": 0, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
BERT |= {"intermediate_size": 48, "initializer_range": 0.3, "max_position_embeddings": 514}
WRITERS = {"bart": ("Bart", BART), "pegasus": ("Pegasus", BART), "t5": ("T5", T5)}
READERS = {"bert": ("Bert", BERT), "roberta": ("Roberta", {**BERT, "type_vocab_size": 1}), "electra": ("Electra", BERT)}
TOLERANCE = 1e-5  # relative, of scores
TEXT = """the a of river town castle bridge opened closed built led by in Merton Galham Åsa naïve 東京 café 1874 12.5
March November king's well-known director, whose forty-six rooms: (almost) all stood empty. Who? It"""
WORDS = TEXT.split()


def texts(number: int, longest: int, seed: int = 0) -> list[str]:
    """Made texts with accents, punctuation, double blanks, and characters of several bytes."""
    draw = random.Random(seed)
    return [" ".join(draw.choices([*WORDS, "", "\n"], k=draw.randint(8, longest))).strip() for _ in range(number)]


def make_tokenizer(kind: str) -> transformers.PreTrainedTokenizerFast:
    """A tokenizer of a model's kind, trained on the texts."""
    if kind in ("bert", "electra"):
        made, trainer = Tokenizer(models.WordPiece(unk_token="<unk>")), trainers.WordPieceTrainer
        made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.WordPiece()
    elif kind in ("t5", "pegasus"):
        made, trainer = Tokenizer(models.Unigram()), trainers.UnigramTrainer
        made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    else:
        made, trainer = Tokenizer(models.BPE()), trainers.BpeTrainer
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
    unknown = {"unk_token": "<unk>"} if trainer is trainers.UnigramTrainer else {}
    made.train_from_iterator(texts(300, 60), trainer(vocab_size=400, special_tokens=SPECIAL, **unknown))
    pair = "<s> $A </s> </s> $B </s>" if kind == "roberta" else "<s> $A </s> $B:1 </s>:1"
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair=pair, special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    names = {"pad_token": "<pad>", "bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"}
    inputs = ["input_ids", "attention_mask"] + ["token_type_ids"] * (kind in ("bert", "electra"))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", mask_token="<mask>", model_max_length=512, **names,
        model_input_names=inputs,
    )  # fmt: skip


def make(folder: Path) -> None:
    """Write the models."""
    torch.manual_seed(0)
    for kind, (name, settings) in {**WRITERS, **READERS}.items():
        end = "ForConditionalGeneration" if kind in WRITERS else "ForQuestionAnswering"
        model = getattr(transformers, name + end)(getattr(transformers, f"{name}Config")(**settings))
        if kind == "bart":  # the model has settings of its own; its beams, if it had them, 4.57 would not have used
            model.generation_config.update(max_length=30, no_repeat_ngram_size=3)
        model.save_pretrained(folder / kind)
        make_tokenizer(kind).save_pretrained(folder / kind)


def results(folder: Path) -> Iterator[Any]:
    """What the pipelines give, case by case."""
    for kind in WRITERS:
        tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder / kind)
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder / kind).eval()
        for task, beams in product(
            ("summarization", "text2text-generation"), ({}, {"num_beams": 1, "max_new_tokens": 9})
        ):
            pipe = transformers.pipeline(task, model=model, tokenizer=tokenizer, device="cpu")
            yield pipe(texts(6, 40, seed=1), **beams)
            yield pipe(texts(1, 20, seed=2)[0], num_return_sequences=2, num_beams=4)
            yield pipe(texts(6, 900, seed=3), truncation=True, batch_size=3, **beams)
    for kind in READERS:
        tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder / kind)
        model = transformers.AutoModelForQuestionAnswering.from_pretrained(folder / kind).eval()
        pipe = transformers.pipeline("question-answering", model=model, tokenizer=tokenizer, device="cpu")
        questions, contexts = texts(12, 12, seed=4), texts(8, 60, seed=5) + texts(4, 400, seed=6)
        lengths = {}, {"max_seq_len": 90, "doc_stride": 20}, {"max_seq_len": 64}
        ends = {}, {"top_k": 3}, {"top_k": 5, "align_to_words": False}, {"handle_impossible_answer": True, "top_k": 2}
        for cut, end, longest in product(lengths, ends, (1, 15, 40)):
            batch = 4 if longest == 15 else 1
            yield pipe(question=questions, context=contexts, max_answer_len=longest, batch_size=batch, **cut, **end)
        yield pipe(question=questions[0], context=contexts[0])


def differences(old: Any, new: Any, place: str = "") -> Iterator[str]:
    """Where two results differ; numbers by more than the tolerance."""
    if isinstance(old, float) and isinstance(new, float):
        if abs(old - new) > TOLERANCE * max(abs(old), 1e-9):
            yield f"{place}: {old} and {new}"
    elif type(old) is not type(new) or (isinstance(old, (dict, list)) and len(old) != len(new)):
        yield f"{place}: {old!r:.200} and {new!r:.200}"
    elif isinstance(old, dict):
        for name in old:
            yield from differences(old[name], new.get(name), f"{place}.{name}")
    elif isinstance(old, list):
        for number, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, f"{place}[{number}]")
    elif old != new:
        yield f"{place}: {old!r:.200} and {new!r:.200}"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("step", choices=("make", "run", "compare"))
    parser.add_argument("paths", type=Path, nargs="+")
    args = parser.parse_args()
    if args.step == "make":
        make(*args.paths)
    elif args.step == "run":
        if int(transformers.__version__.split(".")[0]) >= 5:
            import fairseq_poolingformer.huggingface.pipelines  # noqa: F401 registers them
        folder, output = args.paths
        output.write_text(json.dumps(list(results(folder))), encoding="utf-8")
    else:
        old, new = (json.loads(path.read_text(encoding="utf-8")) for path in args.paths)
        found = list(differences(old, new))
        print(*found[:20], sep="\n")
        print(f"{len(old)} calls compared, {len(found)} differences")
        return bool(found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
