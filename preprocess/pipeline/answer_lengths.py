"""The lengths of questions and answers, and what the limits of training and prediction do to them."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fairseq_poolingformer.text.data_folder import DataFolder

from . import task_corpus


def table(
    folder: DataFolder,
    name: str,
    splits: Sequence[str],
    max_positions: Sequence[int],
    rejects: Mapping[str, int] | None = None,
    max_question: int | None = None,
    max_answer: int | None = None,
) -> str:
    """Report what :func:`~preprocess.pipeline.task_corpus.length_table` does, and lengths of questions and answers.

    Args:
        folder, name, splits, max_positions, rejects: as there.
        max_question: tokens that training cuts questions to, None for no limit.
        max_answer: tokens of an answer that prediction gives; None where answers are no spans of the document.
    """
    lines = [task_corpus.length_table(folder, name, splits, max_positions, rejects)]
    for split in splits:
        lines.append(_questions(folder.sequences(split, "question").sizes, split, max_question))
        if max_answer is not None:
            lines += _answers(folder, split, max_answer)
    return "\n".join(lines)


def _questions(sizes: np.ndarray, split: str, limit: int | None) -> str:
    found = f"{split}: questions have up to {sizes.max(initial=0)} tokens"
    if limit is None:
        return found
    return (
        f"{found}; {np.count_nonzero(sizes > limit)} have more than {limit}, to which --max-question-length cuts them"
    )


def _answers(folder: DataFolder, split: str, limit: int) -> Iterator[str]:
    answer = folder.sequences(split, "answer")
    first, end = np.asarray(answer.values, np.int64).reshape(-1, 2).T
    if len(first):
        shortest = np.full(len(answer), np.iinfo(np.int64).max)
        np.minimum.at(shortest, np.repeat(np.arange(len(answer)), answer.sizes // 2), end - first)
        shortest = shortest[answer.sizes > 0]
        yield (
            f"{split}: the shortest answers have {np.median(shortest):.0f} tokens (median), up to {shortest.max()}; "
            f"{np.count_nonzero(shortest > limit)} have more than {limit}, which prediction never gives"
        )
