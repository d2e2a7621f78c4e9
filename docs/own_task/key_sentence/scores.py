"""The share of documents whose key sentence is right."""

import json


def score(gold, predictions):
    found = json.loads(predictions.read_text())["key_sentence"]
    right = [json.loads(line) for path in gold for line in path.read_text().splitlines()]
    return {"accuracy": 100 * sum(found.get(str(x["id"])) == x["key"] for x in right) / len(right)}
