"""Write questions whose answer is 300 to 500 tokens from its cue, in TyDi QA's format.

    python run_scripts/question_answering/far_answers.py OUTPUT_FOLDER [--train 3000] [--dev 200] [--words 1500] …

A document is filler with three pairs of a cue, which names a town, and the words "they chose" with a choice, 280 to 440
words before or after it and more than 480 from the cues of the others; a word is 1.1 tokens of a small sentencepiece
model. The question asks what one of the towns chose. Nothing near a choice tells it from the other two, nor does its
place, and no passage holds both cue and answer. Windows of 128 tokens in two layers reach 256. Only the question, which
is global, sees the cue from everywhere and could tell all tokens its place.
"""

import argparse
import itertools
import json
import random
from pathlib import Path

SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
NEAREST, FARTHEST, APART = 280, 440, 480  # words
PASSAGE = 100  # words


def make_words(count: int, generator: random.Random) -> list[str]:
    """Make different words of two or three syllables."""
    words: set[str] = set()
    while len(words) < count:
        words.add("".join(generator.choices(SYLLABLES, k=generator.choice((2, 3)))))
    return sorted(words)


def make_example(number: int, length: int, annotations: int, vocabulary: dict, generator: random.Random) -> dict:
    """One example."""
    words = generator.choices(vocabulary["filler"], k=length)
    cues, answers = make_pairs(length, generator)
    answer = answers[0]
    town, *others = generator.sample(vocabulary["town"], len(cues))
    for place in answers:
        words[place - 2 : place + 1] = ["they", "chose", generator.choice(vocabulary["choice"])]
    for name, place in zip((town, *others), cues, strict=True):
        words[place - 2 : place + 1] = ["town", "of", name]

    starts, position = [], 0
    for word in words:
        starts.append(position)
        position += len(word) + 1
    text = " ".join(words)
    firsts = range(0, length, PASSAGE)
    passages = [
        {
            "plaintext_start_byte": starts[i],
            "plaintext_end_byte": starts[i + PASSAGE] if i + PASSAGE < length else len(text),
        }
        for i in firsts
    ]
    annotation = {
        "annotation_id": number,
        "passage_answer": {"candidate_index": answer // PASSAGE},
        "minimal_answer": {
            "plaintext_start_byte": starts[answer],
            "plaintext_end_byte": starts[answer] + len(words[answer]),
        },
        "yes_no_answer": "NONE",
    }
    return {
        "example_id": number,
        "language": "english",
        "document_title": f"document {number}",
        "document_url": "",
        "question_text": f"what chose the town of {town}",
        "document_plaintext": text,
        "passage_answer_candidates": passages,
        "annotations": [annotation] * annotations,
    }


def make_pairs(length: int, generator: random.Random) -> tuple[list[int], list[int]]:
    """Draw the places of three cues and of their answers until the distances are right."""
    while True:
        cues = [generator.randrange(10, length - 10) for _ in range(3)]
        answers = [cue + generator.choice((-1, 1)) * generator.randrange(NEAREST, FARTHEST) for cue in cues]
        inside = all(5 <= answer < length - 5 for answer in answers)
        if inside and all(abs(answers[i] - cues[j]) > APART for i in range(3) for j in range(3) if i != j):
            places = sorted(cues + answers)
            if all(after - before > 10 for before, after in itertools.pairwise(places)):
                return cues, answers


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("output_folder", type=Path)
    parser.add_argument("--train", type=int, default=3000, help="training examples (default: %(default)s)")
    parser.add_argument("--dev", type=int, default=200, help="examples to evaluate on (default: %(default)s)")
    parser.add_argument("--words", type=int, default=1500, help="words of a document (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default: %(default)s)")
    args = parser.parse_args()
    if args.words < 1500:
        parser.error("--words must be at least 1500, to have room for three pairs")
    generator = random.Random(args.seed)
    words = make_words(92, generator)  # few, so that a small sentencepiece model has a piece for each
    generator.shuffle(words)
    vocabulary = {"filler": words[:60], "town": words[60:80], "choice": words[80:]}
    args.output_folder.mkdir(parents=True, exist_ok=True)
    for split, count, annotations in (("train", args.train, 1), ("dev", args.dev, 3)):
        with open(args.output_folder / f"{split}.jsonl", "w", encoding="utf-8") as file:
            for number in range(count):
                example = make_example(number, args.words, annotations, vocabulary, generator)
                file.write(json.dumps(example) + "\n")


if __name__ == "__main__":
    main()
