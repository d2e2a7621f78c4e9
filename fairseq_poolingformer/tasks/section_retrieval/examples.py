"""Section retrieval: the question is a sentence of the document that names a section, whose number is masked.

A segment is ``<s> [q] question [/q] <t> heading and text <t> heading and text … </s>``. The question is global; so are,
with ``--global-marks``, the marks ``<t>``, one for each section but the question's own. A section that goes on in the
next segment has its mark there, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairseq_poolingformer.tasks.shared.examples import Examples, Segment, Symbols, count_pieces, cut, cut_questions
from fairseq_poolingformer.text.data_folder import Layout
from fairseq_poolingformer.text.sequences import Sequences
from fairseq_poolingformer.text.split import Split, refuse, sums

MAX_QUESTION = 128  # tokens
NO_ANSWER = -1  # where --max-segments leaves the right section out


@dataclass(frozen=True)
class SectionSplit(Split):
    """One split; ``section`` has the tokens of all sections, of the sizes in ``size``.

    ``own`` is the number of the section that the question stands in, ``answer`` that of the one that it names.
    """

    layout: ClassVar[Layout] = Layout(
        made_with="poolingformer-preprocess rfc_sections",
        ids=("question", "section"),
        numbers=("size", "own", "answer"),
        texts=("id", "sections"),
    )

    question: Sequences
    section: Sequences
    size: Sequences
    own: Sequences
    answer: Sequences

    def check(self) -> None:
        total = sums(self.size.values, self.size.bounds)
        refuse(self.size, total != self.section.sizes, f"the sizes do not add up to {self.section.prefix.name}")
        for one in (self.own, self.answer):
            refuse(one, one.sizes != 1, "not one number")
            refuse(one, (one.values < 0) | (one.values >= self.size.sizes), "no such section")
        refuse(self.answer, np.equal(self.answer.values, self.own.values), "the answer is the question's own section")


class SectionExamples(Examples):
    """The examples of a split; ``global_marks`` makes the marks global, too."""

    def __init__(
        self,
        split: SectionSplit,
        symbols: Symbols,
        max_positions: int,
        max_segments: int = 0,
        use_global: bool = True,
        global_marks: bool = False,
    ) -> None:
        self.split, self.symbols, self.max_segments = split, symbols, max_segments
        self.use_global, self.global_marks = use_global, global_marks
        self._questions = cut_questions(split.question, min(MAX_QUESTION, max_positions // 4))
        self._room = max_positions - self._questions - 5  # <s> [q] [/q], the mark of what goes on, and </s>
        tokens = split.section.sizes + split.size.sizes - 1
        pieces = count_pieces(tokens, self._room, max_segments)
        self.sizes = np.minimum(tokens, pieces * self._room) + pieces * (self._questions + 5)

    def segments(self, example: int) -> list[Segment]:
        """Cut an example; at a mark, ``section`` has the number of the section, counted from 1."""
        symbols, split = self.symbols, self.split
        mark, sizes = symbols.marks["<t>"], split.size[example]
        is_choice = np.arange(len(sizes)) != split.own[example][0]
        starts = (np.cumsum(sizes) - sizes)[is_choice]
        tokens = np.insert(split.section[example].astype(np.int64), starts, mark)
        is_mark = np.insert(np.zeros(len(split.section[example]), bool), starts, True)
        number = np.repeat(np.arange(len(sizes)) + 1, sizes + is_choice)
        number *= np.repeat(is_choice, sizes + is_choice)  # 0 in the question's own section
        question = split.question[example][: self._questions[example]]
        head = np.concatenate([[symbols.bos, symbols.marks["[q]"]], question, [symbols.marks["[/q]"]]])
        segments = []
        for first, end in cut(len(tokens), int(self._room[example]), self.max_segments):
            goes_on = [mark] * bool(number[first] and not is_mark[first])
            body = np.concatenate([goes_on, tokens[first:end], [symbols.eos]])
            marks = np.concatenate([number[first : first + len(goes_on)], (number * is_mark)[first:end], [0]])
            section = np.concatenate([np.zeros(len(head), np.int64), marks]).astype(np.int64)
            is_global = (np.arange(len(section)) < len(head)) | (self.global_marks & (section > 0))
            whole = np.concatenate([head, body]).astype(np.int64)
            segments.append(Segment(whole, is_global & self.use_global, {"section": section}))
        return segments

    def inputs(self, example: int) -> dict[str, int | np.ndarray]:
        return {"num_sections": int(self.split.size.sizes[example])}

    def targets(self, example: int) -> dict[str, int | np.ndarray]:
        answer = int(self.split.answer[example][0])
        # without a limit all sections are read, and the segments need not be made again
        is_read = not self.max_segments or any(
            (segment.inputs["section"] == answer + 1).any() for segment in self.segments(example)
        )
        return {"answer": answer if is_read else NO_ANSWER}
