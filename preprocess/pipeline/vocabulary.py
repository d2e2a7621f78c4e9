"""The tokenizer of a corpus: GPT-2's BPE, a sentencepiece model that is given, or one trained on the corpus."""

import argparse
import hashlib
import heapq
import io
import itertools
import logging
from collections.abc import Iterator
from pathlib import Path

import sentencepiece

from fairseq_poolingformer.options import positive
from fairseq_poolingformer.text.dictionary import SPECIAL_SYMBOLS
from fairseq_poolingformer.text.surrogates import replace_lone_surrogates
from fairseq_poolingformer.text.tokenizer_base import BLANK, GPT2, WHITE_SPACE, TokenizerConfig
from fairseq_poolingformer.text.tokenizers import GPT2Tokenizer, SentencePieceTokenizer

from .records import Example, Record, Reject, describe_file, parsed
from .run import Corpus, TokenizerChoice

logger = logging.getLogger("preprocess")

SAMPLE_BYTES = 48 * 2**20  # of raw records held in memory for training a model
CHARS_PER_SYMBOL = 500  # how much text a model is trained on, spread evenly over the sample
_SENTENCE_CHARS = 1000  # sentencepiece drops sentences of more than 4,192 bytes
_THREADS = 2  # a constant: the model depends on it


def add_tokenizer_options(parser: argparse.ArgumentParser, default_vocabulary: int | None = None) -> None:
    """Add the options that say which tokenizer to use."""
    options = parser.add_argument_group("tokenizer")
    choice = options.add_mutually_exclusive_group(required=default_vocabulary is None)
    text = "GPT-2 BPE as BART and RoBERTa use it: the folder with encoder.json, vocab.bpe and fairseq's dict.txt"
    choice.add_argument("--gpt2-bpe", metavar="FOLDER", type=Path, help=text)
    text = "a sentencepiece model; its pieces are the dictionary"
    choice.add_argument("--sentencepiece-model", metavar="FILE", type=Path, help=text)
    trained = "train a sentencepiece model on the train split; the dictionary has VOCAB_SIZE symbols"
    if default_vocabulary is not None:
        trained += f" (default: {default_vocabulary})"
    choice.add_argument(
        "--sentencepiece-train", metavar="VOCAB_SIZE", type=positive, default=default_vocabulary, help=trained
    )
    text = "with --gpt2-bpe, tabs and line breaks: blank reads a blank for each, since BART and RoBERTa have never "
    text += "seen GPT-2's symbols of them; keep reads them as GPT-2 does (default: %(default)s)"
    options.add_argument("--white-space", choices=WHITE_SPACE, default=BLANK, help=text)


def choose_tokenizer(args: argparse.Namespace, corpus: Corpus) -> TokenizerChoice:
    """Return the tokenizer that the command line asks for."""
    if args.gpt2_bpe is not None:
        paths = [args.gpt2_bpe / name for name in GPT2Tokenizer.files]
        for path in paths:
            if not path.is_file():
                raise ValueError(f"--gpt2-bpe {args.gpt2_bpe}: lacks {path.name}")
        config = TokenizerConfig(GPT2, args.white_space)
        settings = {"files": [describe_file(path) for path in paths], **config.values()}
        return TokenizerChoice(settings, lambda folder: GPT2Tokenizer(*paths, config).save(folder))
    if args.sentencepiece_model is not None:
        if not args.sentencepiece_model.is_file():
            raise ValueError(f"--sentencepiece-model {args.sentencepiece_model}: no such file")
        settings = {**SentencePieceTokenizer.config.values(), "files": [describe_file(args.sentencepiece_model)]}
        return TokenizerChoice(settings, lambda folder: SentencePieceTokenizer(args.sentencepiece_model).save(folder))
    size, sampled = args.sentencepiece_train, [SAMPLE_BYTES, CHARS_PER_SYMBOL]
    settings = {**SentencePieceTokenizer.config.values(), "train": size, "type": "unigram", "sample": sampled}
    return TokenizerChoice(settings, lambda folder: train_sentencepiece(corpus, size, folder))


def train_sentencepiece(corpus: Corpus, vocabulary: int, folder: Path) -> None:
    """Train a model on a sample of the train split, by records and settings alone, and put ``tokenizer/`` there."""
    # rare characters become bytes, any whitespace one space, and characters are normalized by NFKC
    logger.info("training a sentencepiece model of %d symbols", vocabulary)
    records = sample(corpus.splits["train"].records(), SAMPLE_BYTES)
    every = max(1, round(sum(len(record.data or b"") for record in records) / (CHARS_PER_SYMBOL * vocabulary)))
    examples = _examples(corpus, records)
    sentences = (sentence for example in examples for sentence in _sentences(example))
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=itertools.islice(sentences, 0, None, every),
            model_writer=model,
            model_type="unigram",
            # The model's <unk>, <s> and </s> are not in the dictionary, which has four special symbols of its own.
            vocab_size=vocabulary - len(SPECIAL_SYMBOLS) + 3,
            character_coverage=0.9995,
            byte_fallback=True,
            normalization_rule_name="nmt_nfkc",
            train_extremely_large_corpus=False,
            num_threads=_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(
            f"--sentencepiece-train {vocabulary}: sentencepiece cannot make a model of this size ({error}). "
            "Try another size; 256 bytes and every common character need a symbol each"
        ) from error
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "trained.model"
    path.write_bytes(model.getvalue())
    SentencePieceTokenizer(path).save(folder)
    path.unlink()


def _examples(corpus: Corpus, records: list[Record]) -> Iterator[Example]:
    """The good examples of records."""
    first_reject, is_empty = None, True
    for record in records:
        example = parsed(record, corpus.parse)
        if isinstance(example, Example):
            is_empty = False
            yield example
        elif isinstance(example, Reject) and first_reject is None:
            first_reject = f"{record.file}, line {record.line}: {example.reason}"
    if is_empty:
        raise ValueError(f"train: no good example to train a tokenizer on; first: {first_reject or 'no lines'}")


def sample(records: Iterator[Record], max_bytes: int) -> list[Record]:
    """Draw random records of at most so many bytes, by digests of their positions: the same every time, in order."""
    heap: list[tuple[int, int, Record]] = []
    size = 0
    for position, record in enumerate(records):
        priority = int.from_bytes(hashlib.blake2b(str(position).encode(), digest_size=8).digest(), "big")
        heapq.heappush(heap, (priority, position, record))
        size += len(record.data or b"")
        while size > max_bytes and len(heap) > 1:
            size -= len(heapq.heappop(heap)[2].data or b"")
    return [record for _, _, record in sorted(heap, key=lambda entry: entry[1])]


def _sentences(example: Example) -> Iterator[str]:
    """Cut an example's texts into short pieces, at spaces where there are any."""
    for text in example.texts:
        text = replace_lone_surrogates(text).replace("\0", " ")
        for line in text.splitlines():
            while len(line) > _SENTENCE_CHARS:
                cut = line.rfind(" ", 1, _SENTENCE_CHARS)
                cut = cut if cut > 0 else _SENTENCE_CHARS
                yield line[:cut]
                line = line[cut:]
            if line.strip():
                yield line
