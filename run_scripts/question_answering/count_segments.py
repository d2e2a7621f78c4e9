"""Print how many segments an epoch of question answering trains on.

    python run_scripts/question_answering/count_segments.py DATA [--max-positions 4096] [--doc-stride 1568] …

An epoch has the segments with an answer, and a share of those without.
"""

import argparse
from pathlib import Path

from fairseq_poolingformer.tasks.question_answering.data import (
    PARTIAL_SEGMENTS,
    LabelCounts,
    QuestionAnsweringSplit,
    SegmentLimits,
    cut_into_segments,
    label_segments,
    read_answers,
)


def main() -> None:
    """Run the command line; the flags are the task's."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--max-positions", type=int, default=4096)
    parser.add_argument("--doc-stride", type=int, default=1568)
    parser.add_argument("--max-question-length", type=int, default=64)
    parser.add_argument("--negative-share", type=float, default=0.5)
    parser.add_argument("--partial-segments", choices=PARTIAL_SEGMENTS, default="skip")
    args = parser.parse_args()
    split = QuestionAnsweringSplit.open(args.data, "train")
    limits = SegmentLimits(args.max_positions, args.doc_stride, args.max_question_length)
    segments = cut_into_segments(split.question.sizes, split.document.sizes, limits)
    answers = read_answers(split)
    labels = label_segments(segments, answers, PARTIAL_SEGMENTS[args.partial_segments])
    counts = LabelCounts.of(segments, answers, labels)
    print(counts.positive + round(args.negative_share * counts.negative))


if __name__ == "__main__":
    main()
