"""Questions whose answer stands 300 to 500 tokens from their cue, in TyDi QA's format.

    python run_scripts/question_answering/far_answers.py OUTPUT_FOLDER [--train 3000] [--dev 200] [--words 1500]

A document is filler in which one town is named that the question asks for, the cue, and other towns. Sentences of one
form say what "they chose": the one 280 to 440 words before or after the cue is the answer, all others are further from
it than 560 words; a word is 1.1 tokens of a small sentencepiece model. Nothing near an answer tells it from the others,
and no passage holds both cue and answer. So a model must see 500 tokens far: windows of 128 in two layers reach 256.
"""

import argparse
import json
import random
from pathlib import Path

SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
NEAREST, FARTHEST, APART = 280, 440, 560  # words
PASSAGE = 100  # words


def make_words(count: int, generator: random.Random) -> list[str]:
    """So many different words of two or three syllables."""
    words: set[str] = set()
    while len(words) < count:
        words.add("".join(generator.choices(SYLLABLES, k=generator.choice((2, 3)))))
    return sorted(words)


def make_example(number: int, length: int, annotations: int, vocabulary: dict, generator: random.Random) -> dict:
    """One example.

    Args:
        number: its id.
        length: words of the document.
        annotations: how many times its answer is annotated.
        vocabulary: "filler", "town" and "choice", lists of words.
        generator: of random numbers.
    """
    words = generator.choices(vocabulary["filler"], k=length)
    town, *others = generator.sample(vocabulary["town"], 7)
    cue = generator.randrange(10, length - 10)
    places = [cue + sign * far for sign in (-1, 1) for far in range(NEAREST, FARTHEST)]
    answer = generator.choice([place for place in places if 5 <= place < length - 5])
    free = [place for place in range(5, length - 5) if abs(place - cue) > APART]
    taken = [cue, answer]
    for place in (answer, *_spread(free, 8, taken, generator)):
        words[place - 2 : place + 1] = ["they", "chose", generator.choice(vocabulary["choice"])]
    for other, place in zip(others, _spread(range(5, length - 5), len(others), taken, generator), strict=False):
        words[place - 2 : place + 1] = ["town", "of", other]
    words[cue - 2 : cue + 1] = ["town", "of", town]

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


def _spread(places, count: int, taken: list[int], generator: random.Random) -> list[int]:
    """At most so many places, no two of which, nor one and a taken one, are nearer than 10 words; ``taken`` grows."""
    chosen = []
    for place in generator.sample(list(places), min(len(places), 20 * count)):
        if len(chosen) < count and all(abs(place - other) > 10 for other in taken):
            chosen.append(place)
            taken.append(place)
    return chosen


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("output_folder", type=Path)
    parser.add_argument("--train", type=int, default=3000, help="training examples (default: %(default)s)")
    parser.add_argument("--dev", type=int, default=200, help="examples to evaluate on (default: %(default)s)")
    parser.add_argument("--words", type=int, default=1500, help="words of a document (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default: %(default)s)")
    args = parser.parse_args()
    if args.words < 2 * APART:
        parser.error(f"--words must be at least {2 * APART}, or nothing is {APART} words from the cue")
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
