import itertools
import json

import numpy as np
import pytest
import torch

from fairseq_poolingformer.tasks.hotpotqa.data import AnswerType, HotpotqaExamples, HotpotqaSplit
from fairseq_poolingformer.tasks.hotpotqa.task import HotpotqaLogits, HotpotqaPredictor, supporting_sentences
from fairseq_poolingformer.tasks.shared.examples import Symbols
from fairseq_poolingformer.tasks.shared.heads import MarkLogits, SpanLogits
from fairseq_poolingformer.text.dictionary import MARKS
from fairseq_poolingformer.text.tokenizers import load_tokenizer
from tests.tasks.released_files import HOTPOTQA_QUESTIONS, hotpotqa_folder

SYMBOLS = Symbols(bos=0, eos=2, pad=1, marks={mark: 1000 + number for number, mark in enumerate(MARKS)})
NAMES = {number: mark for mark, number in SYMBOLS.marks.items()} | {0: "<s>", 2: "</s>"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return hotpotqa_folder(tmp_path_factory.mktemp("hotpotqa"))


@pytest.fixture(scope="module")
def split(folder):
    return HotpotqaSplit.open(folder, "train")


def words(folder, tokens):
    """The tokens as text, each mark between spaces."""
    tokenizer = load_tokenizer(folder)
    groups = itertools.groupby(tokens.tolist(), lambda token: NAMES.get(token))
    pieces = [" ".join([mark] * len(list(group))) if mark else tokenizer.decode(list(group)) for mark, group in groups]
    return " ".join(" ".join(pieces).split())


def test_a_segment_is_that_of_the_paper(folder, split):
    (segment,) = HotpotqaExamples(split, SYMBOLS, 1024).segments(0)
    expected = ["<s> [q] Were Scott Derrickson and Ed Wood of the same nationality? [/q]"]
    for title, sentences in HOTPOTQA_QUESTIONS[0]["context"]:
        expected += [f"<t> {title} </t>", *(f"{sentence.strip()} [s]" for sentence in sentences)]
    assert words(folder, segment.tokens) == " ".join([*expected, "</s>"])
    names = [NAMES.get(token, "") for token in segment.tokens.tolist()]
    end = names.index("[/q]")
    is_global = [k <= end or name in ("<t>", "[s]") for k, name in enumerate(names)]
    assert segment.global_mask.tolist() == is_global
    titles, sentences = (np.array([name == mark for name in names]) for mark in ("<t>", "[s]"))
    assert segment.inputs["paragraph"][titles].tolist() == [1, 2, 3, 4]
    assert segment.inputs["sentence"][sentences].tolist() == list(range(1, 9))
    assert segment.targets["relevant"][titles].tolist() == [0, 1, 1, 0]
    assert segment.targets["supporting"][sentences].tolist() == [0, 0, 1, 0, 1, 0, 0, 0]
    for column, places in (
        ("paragraph", titles),
        ("relevant", titles),
        ("sentence", sentences),
        ("supporting", sentences),
    ):
        assert not {**segment.inputs, **segment.targets}[column][~places].any()
    text = np.array([name == "" for name in names]) & (np.arange(len(names)) > end)
    assert ((segment.inputs["piece"] > 0) == text).all()
    assert len(set(segment.inputs["piece"][text])) == 4 + 8


@pytest.mark.parametrize(("max_positions", "max_segments"), [(40, 0), (32, 2), (400, 0)])
def test_segments_share_out_the_paragraphs(split, max_positions, max_segments):
    """Together the segments read what one segment reads; answers that a cut goes through are not marked."""
    cut = HotpotqaExamples(split, SYMBOLS, max_positions, max_question_length=12, max_segments=max_segments)
    whole = HotpotqaExamples(split, SYMBOLS, 4096, max_question_length=12)
    for number in range(3):
        segments, (joined,) = cut.segments(number), whole.segments(number)
        assert sum(len(segment.tokens) for segment in segments) == cut.sizes[number]
        head = joined.tokens.tolist().index(SYMBOLS.marks["[/q]"]) + 1
        read = np.concatenate([segment.tokens[head:-1] for segment in segments])
        assert (read == joined.tokens[head : head + len(read)]).all()
        assert len(read) == len(joined.tokens) - head - 1 or (max_segments and len(segments) == max_segments)
        for name in ("paragraph", "sentence", "piece"):
            parts = np.concatenate([segment.inputs[name][head:-1] for segment in segments])
            assert (parts == joined.inputs[name][head : head + len(read)]).all()
        for segment in segments:
            assert len(segment.tokens) <= max_positions
            assert np.count_nonzero(segment.targets["first"]) == np.count_nonzero(segment.targets["last"])


def nonempty_subsets(count):
    return [subset for size in range(1, count + 1) for subset in itertools.combinations(range(count), size)]


def every_choice(paragraph, sentences):
    """All sets of sentences from exactly two paragraphs, with their sums of log-odds."""
    for pair in itertools.combinations(range(len(paragraph)), 2):
        counts = [len(sentences[p]) for p in pair]
        for chosen in itertools.product(*map(nonempty_subsets, counts)):
            places = [(p, k) for p, subset in zip(pair, chosen, strict=True) for k in subset]
            yield sum(paragraph[p] for p in pair) + sum(sentences[p][k] for p, k in places), places


def test_supporting_facts_are_the_most_probable_ones_of_exactly_two_paragraphs():
    rng = np.random.default_rng(0)
    for _ in range(300):
        sizes = rng.integers(0, 4, rng.integers(2, 5))
        paragraph = rng.normal(size=len(sizes)) * 2
        sentences = [rng.normal(size=size) * 2 - 1 for size in sizes]
        choices = list(every_choice(paragraph, sentences))
        facts = supporting_sentences(paragraph, sentences)
        if choices:
            assert facts == max(choices)[1]
        else:
            assert len({place for place, _ in facts}) == min(1, np.count_nonzero(sizes))
    # of sentences that were read
    odds = [np.array([3.0, -np.inf]), np.array([-np.inf, -np.inf]), np.zeros(0), np.array([-np.inf, -2.0])]
    assert supporting_sentences(np.array([0.0, 9.0, 9.0, -5.0]), odds) == [(0, 0), (3, 1)]
    assert supporting_sentences(np.zeros(1), [np.full(2, -np.inf)]) == []


def right_logits(examples, numbers, answer_types):
    """Logits as a perfect model would give them, and the batch's tokens."""
    segments = [(row, segment) for row, number in enumerate(numbers) for segment in examples.segments(number)]
    width = max(len(segment.tokens) for _, segment in segments)

    def column(kind, name):
        rows = [getattr(segment, kind)[name] if name else segment.tokens for _, segment in segments]
        return torch.from_numpy(np.stack([np.pad(row, (0, width - len(row))) for row in rows]))

    example = torch.tensor([row for row, _ in segments])

    def marks(number_name, target):
        row, place = column("inputs", number_name).nonzero(as_tuple=True)
        logit = column("targets", target)[row, place] * 8.0 - 4.0
        return MarkLogits(logit, row, place, example[row], column("inputs", number_name)[row, place] - 1)

    ends = ((column("targets", name) > 0).float() * 5 for name in ("first", "last"))
    span = SpanLogits(*ends, column("inputs", "piece"), example, len(numbers))
    kinds = torch.nn.functional.one_hot(torch.tensor(answer_types), 3).float()
    logits = HotpotqaLogits(span, kinds, marks("paragraph", "relevant"), marks("sentence", "supporting"))
    return logits, {"net_input": {"src_tokens": column("tokens", "")}}


def test_an_answer_ends_with_its_last_token_and_what_was_not_read_has_no_score(folder, split, tmp_path):
    examples = HotpotqaExamples(split, SYMBOLS, 4096, max_question_length=12)
    logits, batch = right_logits(examples, [1], [AnswerType.SPAN])
    begin = int(logits.span.start[0].argmax())
    logits.span.end[0, begin] = 9.0  # of "Chief of Protocol" its first token alone
    predictor = HotpotqaPredictor(folder, "train")
    predictor.add([1], logits, batch)
    short = HotpotqaExamples(split, SYMBOLS, 40, max_question_length=12, max_segments=1)
    logits, batch = right_logits(short, [0], [AnswerType.SPAN])
    logits.span.piece.zero_()  # as if no token were left
    predictor.add([0], logits, batch)
    predictor.write(tmp_path / "p.json")
    content = json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))
    ids = [question["_id"] for question in HOTPOTQA_QUESTIONS]
    token = examples.segments(1)[0].tokens[begin : begin + 1]
    assert content["answer"] == {ids[0]: "", ids[1]: words(folder, token)}
    scores = [score for _, score in content["paragraph_scores"][ids[0]]]
    assert None in scores
    assert scores[0] is not None
