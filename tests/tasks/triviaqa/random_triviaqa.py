"""Random released files of TriviaQA and HotpotQA with predictions: near misses, unusual characters, missing keys."""

import json
import random
from pathlib import Path

_WORDS = (
    *("The", "a", "AN", "an", "Sunset", "sunset", "Blvd.", "Boulevard", "boulevard", "_", "new_york", "New York"),
    *("yes", "No", "no.", "noanswer", "no answer", "St. John’s", "rock-n-roll", "rocknroll", "O'Neill", "o neill"),
    *("é", "İstanbul", "ΣΑΣ", "σας", "the–end", "\u00a0", "\u2003", "…", "«a»", "`", "´", "‘x’", "a/b", "ab", "", "½"),
)


def phrase(rng: random.Random) -> str:
    """A few words, so that two phrases often share some of them, or differ in what normalizing takes away."""
    separators = (" ", " ", "-", "  ", ", ", "\n")
    return "".join(rng.choice(_WORDS) + rng.choice(separators) for _ in range(rng.randint(0, 4))).strip(" ,-")


def altered(rng: random.Random, text: str) -> str:
    """The text as somebody else might write it."""
    kind = rng.randrange(6)
    if kind < 3:
        return (text, text.upper(), f"The {text}.")[kind]
    return (text.replace(" ", "_"), f"{text} {phrase(rng)}", phrase(rng))[kind - 3]


def triviaqa_set(seed: int, questions: int) -> tuple[dict, dict]:
    """The object of a released file, and predictions."""
    rng = random.Random(seed)
    domain, verified = rng.choice(("Wikipedia", "Web")), rng.random() < 0.4
    data, predictions = [], {}
    for number in range(questions):
        name = f"tc_{number if rng.random() < 0.95 else 0}"
        aliases = [phrase(rng) for _ in range(rng.randint(1, 4))]
        answer = {"Aliases": aliases, "NormalizedAliases": aliases, "Value": aliases[0]}
        if rng.random() < 0.3:
            answer["HumanAnswers"] = [phrase(rng)]
        lists = ("EntityPages", "SearchResults") if domain == "Web" else ("EntityPages",)
        pages = {
            key: [{"Filename": f"{rng.randrange(9)}/{rng.randrange(9)}.txt"} for _ in range(rng.randint(1, 3))]
            for key in lists
        }
        all_pages = [page for group in pages.values() for page in group]
        question = {"QuestionId": name, "Question": "q", "Answer": answer, **pages}
        if verified:
            question["QuestionPartOfVerifiedEval"] = rng.random() < 0.7 or number == 0
            for page in all_pages:
                page["DocPartOfVerifiedEval"] = rng.random() < 0.6
            pages[lists[0]][0]["DocPartOfVerifiedEval"] = True
        data.append(question)
        keys = [name] if domain == "Wikipedia" else [f"{name}--{page['Filename']}" for page in all_pages]
        for key in keys:
            if rng.random() < 0.9:
                predictions[key] = altered(rng, rng.choice(aliases))
    predictions["tc_unknown"] = "nobody"
    return {"Data": data, "Domain": domain, "VerifiedEval": verified, "Version": 1.0}, predictions


def hotpotqa_set(seed: int, questions: int) -> tuple[list, dict]:
    """The list of a released file, and predictions."""
    rng = random.Random(seed)
    gold, answers, facts = [], {}, {}
    for number in range(questions):
        name = f"5a{number:022x}"
        answer = rng.choice(("yes", "no", phrase(rng), phrase(rng), phrase(rng)))
        right = [[rng.choice("ABCD"), rng.randrange(3)] for _ in range(rng.randint(0, 4))]
        gold.append({"_id": name, "question": "q", "answer": answer, "supporting_facts": right, "context": []})
        if rng.random() < 0.95:
            answers[name] = altered(rng, answer) if rng.random() < 0.8 else rng.choice(("yes", "no", "noanswer"))
        if rng.random() < 0.95:
            predicted = [fact for fact in right if rng.random() < 0.8]
            facts[name] = predicted + [[rng.choice("ABCD"), rng.randrange(3)] for _ in range(rng.randint(0, 2))]
    return gold, {"answer": answers, "sp": facts}


MAKERS = {"triviaqa": triviaqa_set, "hotpotqa": hotpotqa_set}
CLONES = {"triviaqa": "triviaqa", "hotpotqa": "hotpot"}


def write_set(folder: Path, gold: dict | list, predictions: dict) -> tuple[Path, Path]:
    """Write both as the official scripts read them; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "gold.json", folder / "predictions.json"
    for path, content in zip(paths, (gold, predictions), strict=True):
        path.write_text(json.dumps(content), encoding="utf-8")
    return paths
