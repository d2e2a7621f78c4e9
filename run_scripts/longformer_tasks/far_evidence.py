"""Write questions whose answer is 32 to 45 words from its evidence, in TriviaQA's format.

    python run_scripts/longformer_tasks/far_evidence.py OUTPUT_FOLDER [--train 3000] [--dev 500] [--words 200] …

A document is a piece of real prose, the standard library's docstrings, with one "in this town" and three "they chose X"
in place of words. The question asks what the town chose: the X that is 32 to 45 words before or after the town, where
the other two are more than 64 away. Nothing near an X tells the right one, nor do the places of the three. The prose of
train and dev is that of different modules.
"""

import argparse
import itertools
import json
import random
import string
from pathlib import Path

from fairseq_poolingformer.preprocess.facts import read_sentences

SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
NEAREST, FARTHEST, APART = 32, 46, 64  # words


def make_words(count: int, prose: set[str], generator: random.Random) -> list[str]:
    """Make different words of two syllables that the prose does not have."""
    words = map("".join, itertools.product(SYLLABLES, repeat=2))
    return generator.sample([word for word in words if word not in prose], count)


def make_document(length: int, prose: list[str], choices: list[str], generator: random.Random) -> tuple[str, str]:
    """Return a document of so many words, and the right choice."""
    town, places = make_places(length, generator)
    begin = generator.randrange(len(prose) - length)
    words, chosen = prose[begin : begin + length], generator.sample(choices, 3)
    words[town - 2 : town + 1] = ["in", "this", "town"]
    for place, choice in zip(places, chosen, strict=True):
        words[place - 2 : place + 1] = ["they", "chose", choice]
    return " ".join(words), chosen[0]


def make_places(length: int, generator: random.Random) -> tuple[int, list[int]]:
    """Draw the places of the town and of three choices, the right one first.

    Each of the three could be the right one, so that their places alone do not tell which is.
    """
    while True:
        places = generator.sample(range(2, length), 3)
        towns = [towns_of(place, [other for other in places if other != place], length) for place in places]
        if all(towns) and all(later - earlier > 3 for earlier, later in itertools.pairwise(sorted(places))):
            return generator.choice(towns[0]), places


def towns_of(right: int, others: list[int], length: int) -> list[int]:
    """Return the places of the town for which this choice is the right one."""
    near = [right + side * distance for side in (-1, 1) for distance in range(NEAREST, FARTHEST)]
    return [town for town in near if 2 <= town < length and all(abs(other - town) > APART for other in others)]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("output_folder", type=Path)
    parser.add_argument("--train", type=int, default=3000, help="training questions (default: %(default)s)")
    parser.add_argument("--dev", type=int, default=500, help="questions to evaluate on (default: %(default)s)")
    parser.add_argument("--words", type=int, default=200, help="words of a document (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default: %(default)s)")
    args = parser.parse_args()
    if args.words < 160:
        parser.error("--words must be at least 160, to have room for all distances")
    generator = random.Random(args.seed)
    prose = {split: " ".join(read_sentences(split == "dev")).split() for split in ("train", "dev")}
    used = {word.strip(string.punctuation).lower() for words in prose.values() for word in words}
    choices = make_words(12, used, generator)
    evidence = args.output_folder / "evidence" / "wikipedia"
    for folder in (evidence, args.output_folder / "qa"):
        folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", args.train), ("dev", args.dev)):
        questions = []
        for number in range(count):
            name = f"{split}_{number}"
            text, answer = make_document(args.words, prose[split], choices, generator)
            (evidence / f"{name}.txt").write_text(text, encoding="utf-8")
            questions.append(
                {
                    "QuestionId": name,
                    "Question": "what did the town choose",
                    "Answer": {"Value": answer, "Aliases": [answer], "NormalizedAliases": [answer]},
                    "EntityPages": [{"Filename": f"{name}.txt", "Title": name}],
                }
            )
        content = {"Data": questions, "Domain": "Wikipedia", "Split": split, "VerifiedEval": False, "Version": 1.0}
        (args.output_folder / "qa" / f"wikipedia-{split}.json").write_text(json.dumps(content), encoding="utf-8")


if __name__ == "__main__":
    main()
