"""The masks of run_scripts/evidence: names that come back, by hand and by the text; distances beside a twin."""

import numpy as np
import pytest

from fairseq_poolingformer.text.masking import SymbolTable
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from run_scripts.evidence.masked_names import NameMasking, RepeatedNames, first_halves
from run_scripts.evidence.repetitions import NONE, nearest_repetitions
from tests.lab import ROOT
from tests.tasks.masked_lm.mlm_folder import random_texts, write_folder
from tests.tasks.masked_lm.test_task import build
from tests.text.test_masking import BOS, EOS, ER, LONG, MASK, PART, REST, THE, WORDS

NAMES = ("--user-dir", str(ROOT / "run_scripts" / "evidence"), "--task", "masked_names", "--mask-whole-words")

TEXTS = [b"", b" the", b"the", b" cat", b"s", b"\n", b" ", b"\xc3", b" (", b" cat.", b"cat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_folder(folder, {"train": random_texts(60, 60)})
    return folder


def test_first_halves_by_hand():
    words = [0, 1, 1, 2, 2, 2, 3, 4, 4, 4, 4]
    assert np.flatnonzero(first_halves(np.array(words))).tolist() == [1, 3, 4, 7, 8]


def test_names_are_drawn_first_and_keep_their_first_half():
    names = RepeatedNames(WORDS, 1, 100)
    masking = NameMasking(SymbolTable.of(WORDS), MASK, 0.5, 0.0, 0.0, True, names=names, names_share=1.0)
    # "longer" comes twice, the other words have one symbol or come once
    tokens = np.array([BOS, LONG, ER, THE, THE, LONG, ER, THE, THE, THE, PART, REST, EOS])
    shares = []
    for seed in range(100):
        seen, is_target = masking.apply(tokens, np.random.default_rng(seed))
        assert is_target[2] or is_target[6]  # one of the two for sure; the other may be drawn as any word
        assert not is_target[[0, 1, 5, 10, 12]].any()
        assert (seen == np.where(is_target, MASK, tokens)).all()
        shares.append(int(is_target.sum()))
    assert set(shares) == {4}  # half of eight words, one token of each


def test_names_are_whole_words():
    names = RepeatedNames(WORDS, 1, 100)
    for whole_words, share in ((False, 0.5), (True, 0.0), (True, 1.5)):
        with pytest.raises(ValueError, match="repeated names are whole words and a share"):
            NameMasking(SymbolTable.of(WORDS), MASK, whole_words=whole_words, names=names, names_share=share)


def test_names_are_drawn_by_hand():
    #        <s>  cat·s  the  cat·s  the  cat·cat  </s>  cat·s
    tokens = np.array([0, 3, 4, 1, 3, 4, 1, 3, 10, 0, 3, 4])
    words = np.array([0, 1, 1, 2, 3, 3, 4, 5, 5, 6, 7, 7])

    def drawn(nearest, farthest, count=9):
        names = RepeatedNames(TEXTS, nearest, farthest)
        return {tuple(names.draw(tokens, words, count, np.random.default_rng(seed)).tolist()) for seed in range(40)}

    # "cats" is at 1, 4 and 10; "the" has a symbol of its own, and "catcat" comes once
    assert drawn(1, 20) == {(1,), (3,), (7,)}
    assert drawn(4, 20) == {(7,)}  # the nearest one counts: 3 tokens from 4 to 1, 6 from 10 to 4
    assert drawn(1, 3) == {(1,), (3,)}
    assert drawn(7, 20) == {()}
    assert drawn(1, 20, count=0) == {()}


@pytest.mark.parametrize("distances", [(1, 5), (10, 40)])
def test_names_are_chosen_by_distance(folder, distances):
    """With a share of 1, all masked words are names at these distances wherever a block has any."""
    flags = (*NAMES, "--mask-names-share", "1", "--mask-prob", "0.01")  # no word or one
    _, task = build(folder, *flags, "--mask-names", "-".join(map(str, distances)))
    task.load_dataset("train")
    texts = load_tokenizer(folder).symbol_texts() + [b""] * 9
    chosen = 0
    for item in map(task.dataset("train").__getitem__, range(len(task.dataset("train")))):
        masked = (item["target"] != 1).numpy()
        original = np.where(masked, item["target"], item["tokens"])
        words = task.masking.symbols.words(original)
        nearest = nearest_repetitions(original, words, np.ones(len(words), dtype=bool), texts)
        suits = (np.bincount(words)[words] > 1) & (nearest >= distances[0]) & (nearest <= distances[1])
        if suits.any() and masked.any():
            assert suits[masked].all()
            assert not first_halves(words)[masked].any()
            chosen += 1
    assert chosen >= 3


def test_mistakes_are_refused(folder):
    for distances in ((0, 5), (6, 5)):
        with pytest.raises(ValueError, match="distances must ascend from 1"):
            RepeatedNames(TEXTS, *distances)
    for flags in ([], ["--mask-names", "5"]):
        with pytest.raises(ValueError, match="--mask-names must be two distances in tokens"):
            build(folder, *NAMES, *flags)


def nearest(tokens, words, hidden=(), texts=TEXTS):
    visible = np.ones(len(tokens), dtype=bool)
    visible[list(hidden)] = False
    return nearest_repetitions(np.array(tokens), np.array(words), visible, texts).tolist()


def test_distances_by_hand():
    #        <s>  the  cat  cat·s  the  \n  cat  </s>
    tokens = [0, 2, 3, 3, 4, 1, 5, 3, 0]
    words = [0, 1, 2, 3, 3, 4, 5, 6, 7]
    assert nearest(tokens, words) == [NONE, 4, 5, NONE, NONE, 4, NONE, 5, NONE]
    # a hidden word still has a distance, to those that can be seen; nobody has one to it
    assert nearest(tokens, words, hidden=[1]) == [NONE, 4, 5, NONE, NONE, NONE, NONE, 5, NONE]
    assert nearest(tokens, words, hidden=[1, 5]) == [NONE, NONE, 5, NONE, NONE, NONE, NONE, 5, NONE]
    assert nearest([3, 4, 3, 4], [0, 0, 1, 1], hidden=[3]) == [NONE, NONE, 2, 2]
    assert nearest([], []) == []
    assert nearest([8, 10, 1, 9], [0, 0, 1, 2]) == [3, 3, NONE, 3]  # "(cat", the, cat.
    assert nearest([8, 8], [0, 1]) == [NONE, NONE]
