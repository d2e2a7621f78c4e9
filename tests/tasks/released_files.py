"""Data folders of downstream tasks made by the real commands from tiny input in the released formats."""

import json
from pathlib import Path

from preprocess import hotpotqa, triviaqa

TRIVIAQA_QUESTIONS = [
    # id, question, aliases, documents
    ("tc_1", "Which city is the capital of France?", ["Paris", "City of Light"], ("France.txt", "Paris.txt")),
    ("tc_2", "Who was the man behind the Chipmunks?", ["David Seville", "Ross Bagdasarian"], ("Chipmunks.txt",)),
    ("tc_3", "Which boulevard became a musical in 1993?", ["Sunset Blvd", "Sunset Boulevard"], ("Webber.txt",)),
]
# a model may begin with one right piece and end with another; here these are too far apart for that
TRIVIAQA_DOCUMENTS = {
    "France.txt": "France is in Europe.\nIts largest city is called PARIS; its river is the Seine. Lyon is smaller.",
    "Paris.txt": "The city of light had two million inhabitants, Marseille has fewer. Some still call it Paris.",
    "Chipmunks.txt": "Ross Bagdasarian wrote.\n\nAlvin and his brothers sang them. The sleeve said “David Seville”.",
    "Webber.txt": "Cats came first. The Phantom came next.\nSunset-Boulevard opened in 1993, with Evita on stage.",
}


def write_triviaqa(folder: Path, domain: str = "Wikipedia", questions=TRIVIAQA_QUESTIONS) -> Path:
    """The released layout; the file with the questions is ``qa/set.json``."""
    lists = {"Wikipedia": ("EntityPages", "wikipedia"), "Web": ("SearchResults", "web")}
    name, evidence = lists[domain]
    data = [
        {
            "Answer": {
                **{"Aliases": aliases, "NormalizedAliases": [alias.lower() for alias in aliases]},
                **{"Value": aliases[0], "Type": "WikipediaEntity"},
            },
            **({"EntityPages": []} if domain == "Web" else {}),
            name: [{"Filename": page, "Title": page[:-4]} for page in pages],
            **{"Question": question, "QuestionId": question_id, "QuestionSource": "http://www.triviacountry.com/"},
        }
        for question_id, question, aliases, pages in questions
    ]
    content = {"Data": data, "Domain": domain, "Split": "dev", "VerifiedEval": False, "Version": 1.0}
    for page, text in TRIVIAQA_DOCUMENTS.items():
        path = folder / "evidence" / evidence / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    path = folder / "qa" / "set.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
    return path


HOTPOTQA_QUESTIONS = [
    {
        "_id": "5a8b57f25542995d1e6f1371",
        "answer": "yes",
        "question": "Were Scott Derrickson and Ed Wood of the same nationality?",
        "supporting_facts": [["Scott Derrickson", 0], ["Ed Wood", 0]],
        "context": [
            ["Adam Collis", ["Adam Collis is a filmmaker.", " He attended Duke University."]],
            ["Ed Wood", ["Edward Wood was an American filmmaker.", " He also acted."]],
            ["Scott Derrickson", ["Scott Derrickson is an American.", " He lives in Los Angeles.", " He writes."]],
            ["Tyler Bates", ["Tyler Bates is a musician."]],
        ],
        **{"type": "comparison", "level": "hard"},
    },
    {
        "_id": "5a8c7595554299585d9e36b6",
        "answer": "Chief of Protocol",
        "question": "What position was held by the woman who played Corliss Archer?",
        "supporting_facts": [["Kiss and Tell (film)", 0], ["Shirley Temple", 0], ["Shirley Temple", 1]],
        "context": [
            ["Kiss and Tell (film)", ["Kiss and Tell stars Shirley Temple as Corliss Archer.", " It was a success."]],
            ["Janet Waldo", ["Janet Waldo was an actress."]],
            ["Shirley Temple", ["Shirley Temple was a singer.", " She was also Chief of Protocol of the USA."]],
        ],
        **{"type": "bridge", "level": "hard"},
    },
    {
        "_id": "5a85ea095542994775f606a8",
        "answer": "no",
        "question": "Are Random House Tower and 888 7th Avenue both used for offices?",
        "supporting_facts": [["888 7th Avenue", 0], ["Random House Tower", 1]],
        "context": [
            ["Random House Tower", ["The Random House Tower is tall.", " It has apartments."]],
            ["Alaska", ["Alaska is cold.", " It is large."]],
            ["888 7th Avenue", ["888 7th Avenue is an office building."]],
        ],
        **{"type": "comparison", "level": "hard"},
    },
]


def write_hotpotqa(path: Path, questions=HOTPOTQA_QUESTIONS) -> Path:
    """The released format: one array on one line."""
    path.write_text(json.dumps(questions), encoding="utf-8")
    return path


def triviaqa_folder(folder: Path, *options: str, domain: str = "Wikipedia") -> Path:
    """A data folder with the splits train and valid, both of the same questions."""
    source = write_triviaqa(folder / "raw", domain)
    files = ["--train", str(source), "--valid", str(source), "--evidence-folder", str(folder / "raw" / "evidence")]
    assert triviaqa.main([*files, *_common(folder, options)]) == 0
    return folder / "data"


def hotpotqa_folder(folder: Path, *options: str, questions=HOTPOTQA_QUESTIONS) -> Path:
    """A data folder of HotpotQA's questions, with the splits train and valid."""
    folder.mkdir(exist_ok=True)
    source = write_hotpotqa(folder / "hotpot.json", questions)
    assert hotpotqa.main(["--train", str(source), "--valid", str(source), *_common(folder, options)]) == 0
    return folder / "data"


def _common(folder: Path, options) -> list[str]:
    return ["--output-folder", str(folder / "data"), "--workers", "1", *(options or ("--sentencepiece-train", "320"))]
