"""Random summaries with what real ones have: repeated words, hyphens, digits, inflections, empty ones."""

import random

import pytest

_VOCABULARY = (
    "the of and a in we model models modelling long-range attention self-attention document documents sequence "
    "sequences window 512 3.5 16k state-of-the-art results result improves improved improving pooling pooled summary "
    "summaries they used using tried array studies study data was were p-value t5 and/or e-mail n't 95% (RoBERTa) "
    "L2-norm naïve être"
)


def _sentence(generator: random.Random) -> list[str]:
    return generator.choices(_VOCABULARY.split(), k=generator.randint(3, 25))


def _text(sentences: list[list[str]], mark: str) -> str:
    return " ".join(" ".join(words).capitalize() + mark for words in sentences)


@pytest.fixture(scope="session")
def pairs() -> tuple[list[str], list[str]]:
    """120 hypotheses and references; in half of them the text is tokenised, with a space before each full stop."""
    generator = random.Random(7)
    hypotheses, references = [], []
    for index in range(120):
        mark = " ." if index % 2 else "."
        reference = [_sentence(generator) for _ in range(generator.randint(1, 7))]
        shortened = [[word for word in words if generator.random() < 0.7] for words in reference]
        hypothesis = [words if generator.random() < 0.6 else _sentence(generator) for words in shortened]
        generator.shuffle(hypothesis)
        references.append(_text(reference, mark))
        hypotheses.append("" if index % 30 == 0 else _text(hypothesis, mark))
    references[1] = ""
    return hypotheses, references
