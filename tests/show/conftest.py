"""A look that no model made, with text that a page could trip over."""

import re

import numpy as np
import pytest

from fairseq_poolingformer.show.looks import CROSS, ONE, TWO, Look, Passages, Shares, WordLook

TEXT = 'One & <b>bold</b> 😀 word. Two </script><script>alert("x")</script>.\nThree.\n\n\nFour was cut.'


@pytest.fixture
def made_look():
    document, summary = Passages.sentences(TEXT), Passages.sentences("First $1. Second $2.")
    words = re.finditer(r"\S+", TEXT[: TEXT.index("Four")])
    tokens = np.array([(word.start(), word.end()) for word in words])
    own = np.eye(4, 5) * [[1], [1], [1], [0]]
    one = np.stack([own, 0.5 * own + 0.5 * np.eye(4, 5, 1) * [[1], [1], [1], [0]]])
    cross = np.array([[[0.25, 0.7, 0.0496, 0, 0.0004], [0, 0, 1, 0, 0]]])
    shares = np.zeros((2, len(tokens)))
    shares[0, [2, 3]], shares[1, 3] = 0.5, 1.0
    return Look(
        title="a <title>.txt",
        model="model.pt",
        document=document,
        read=TEXT.index("Four"),
        tokens=tokens,
        views={CROSS: Shares([0], cross), ONE: Shares([0, 1], one), TWO: Shares([1], own[None])},
        summary=summary,
        pieces=np.array([(0, 5), (6, 9), (10, 16), (17, 20)]),
        piece_weights=np.repeat(cross[0], 2, axis=0),
        words=[WordLook((TEXT.index("Three"), TEXT.index("Three") + 5), {ONE: shares, TWO: shares[:1]})],
    )
