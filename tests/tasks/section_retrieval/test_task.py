"""Section retrieval: what is cut, the head, learning by heart, prediction and scores."""

import json

import numpy as np
import pytest
import torch

from fairseq_poolingformer.cli import predict, score
from fairseq_poolingformer.tasks.section_retrieval.examples import NO_ANSWER, SectionExamples, SectionSplit
from fairseq_poolingformer.tasks.section_retrieval.head import SectionHead
from fairseq_poolingformer.weights.files import write_checkpoint
from tests.tasks.folders import MARK, SYMBOLS, words, write
from tests.tasks.test_document_tasks import ENCODERS, fit, make

ASK, END, TITLE = MARK["[q]"], MARK["[/q]"], MARK["<t>"]


def write_sections(folder, examples: list[dict], split: str = "train"):
    arrays = {name: [example[name] for example in examples] for name in ("question", "section", "size")}
    arrays |= {name: [[example[name]] for example in examples] for name in ("own", "answer")}
    shown = [{"id": f"d{k}", "sections": ["A"] * len(x["size"]), "answer": x["answer"]} for k, x in enumerate(examples)]
    texts = {"id": [one["id"] for one in shown], "sections": list(map(json.dumps, shown))}
    return write(folder, "section_retrieval", split, arrays, texts)


def random_examples(count: int, sections: int = 4) -> list[dict]:
    rng = np.random.default_rng(5)
    found = []
    for number in range(count):
        size = rng.integers(1, 16, sections).tolist()
        own, answer = (number % sections, (number + 1 + number // sections) % sections)
        answer = (own + 1) % sections if own == answer else answer
        row = {"question": words(rng, 5), "section": words(rng, sum(size)), "size": size, "own": own, "answer": answer}
        found.append(row)
    return found


ONE = {"question": [10, 11], "section": list(range(20, 30)), "size": [2, 3, 5], "own": 1, "answer": 2}


def segments(tmp_path, **options):
    folder = write_sections(tmp_path, [ONE])
    examples = SectionExamples(SectionSplit.open(folder, "train"), SYMBOLS, **options)
    cut = examples.segments(0)
    spare = examples.sizes[0] - sum(len(segment.tokens) for segment in cut)
    assert 0 <= spare <= len(cut)  # for marks of sections that go on
    return examples, cut


def test_marks_are_before_all_sections_but_the_questions_own(tmp_path):
    examples, (segment,) = segments(tmp_path, max_positions=40)
    body = [TITLE, 20, 21, 22, 23, 24, TITLE, *range(25, 30)]
    assert segment.tokens.tolist() == [0, ASK, 10, 11, END, *body, 2]
    assert segment.inputs["section"].tolist() == [0] * 5 + [1] + [0] * 5 + [3] + [0] * 6
    assert segment.global_mask.tolist() == [True] * 5 + [False] * 13
    assert examples.inputs(0) == {"num_sections": 3}
    assert examples.targets(0) == {"answer": 2}


def test_a_section_that_goes_on_has_its_mark_again(tmp_path):
    _examples, cut = segments(tmp_path, max_positions=15, global_marks=True)
    room = 15 - 2 - 5
    tokens = [TITLE, 20, 21, 22, 23, 24, TITLE, *range(25, 30)]
    assert [segment.tokens.tolist()[5:-1] for segment in cut] == [tokens[:room], [TITLE, *tokens[room:]]]
    assert [segment.inputs["section"].nonzero()[0].tolist() for segment in cut] == [[5, 11], [5]]
    assert [segment.global_mask.nonzero()[0].tolist()[5:] for segment in cut] == [[5, 11], [5]]
    _, cut = segments(tmp_path / "own", max_positions=11)  # the second segment begins in the question's own section
    assert [segment.tokens.tolist()[5:-1] for segment in cut] == [tokens[:4], tokens[4:8], [TITLE, *tokens[8:12]]]


def test_an_answer_beyond_the_last_segment_counts_nothing(tmp_path):
    examples, cut = segments(tmp_path, max_positions=12, max_segments=1)
    assert len(cut) == 1
    assert examples.targets(0) == {"answer": NO_ANSWER}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": [2, 3, 4]}, "the sizes do not add up"),
        ({"answer": 3}, "no such section"),
        ({"own": 2}, "the answer is the question's own section"),
    ],
)
def test_damaged_folders_are_refused(tmp_path, change, message):
    folder = write_sections(tmp_path, [ONE | change])
    with pytest.raises(ValueError, match=message):
        SectionSplit.open(folder, "train")


def test_marks_of_a_section_add_up():
    torch.manual_seed(0)
    head = SectionHead(4).double()
    features = torch.randn(3, 5, 4, dtype=torch.double, requires_grad=True)
    section = torch.tensor([[0, 1, 0, 3, 0], [3, 0, 0, 0, 0], [0, 0, 2, 0, 1]])
    logits = head(features, torch.tensor([0, 0, 1]), 2, section, torch.tensor([3, 2]))
    at = head.score(torch.tanh(head.dense(features))).squeeze(-1).detach()
    lowest = torch.finfo(torch.double).min
    expected = torch.tensor([[at[0, 1], lowest, torch.logaddexp(at[0, 3], at[1, 0])], [at[2, 4], at[2, 2], lowest]])
    torch.testing.assert_close(logits, expected)
    torch.nn.functional.cross_entropy(logits, torch.tensor([2, 0])).backward()
    assert features.grad.isfinite().all()
    assert features.grad[1, 0].any()
    assert not features.grad[:, 1][1].any()


def test_two_levels_learn_by_heart_and_predict(tmp_path, capsys):
    folder = write_sections(write_sections(tmp_path / "data", random_examples(3)), random_examples(3), "valid")
    args, task, model = make(folder, "section_retrieval", *ENCODERS[1])
    task.load_dataset("train")
    assert fit(task, model) == 1
    write_checkpoint(tmp_path / "model.pt", vars(args), model.state_dict())
    output, gold = tmp_path / "predictions.json", folder / "valid.sections.txt"
    words = [folder, "--path", tmp_path / "model.pt", "--subset", "valid", "--output", output, "--device", "cpu"]
    assert predict.main([str(word) for word in words]) == 0
    found = json.loads(output.read_text())["sections"]
    for number, example in enumerate(random_examples(3)):
        assert found[f"d{number}"][0] == example["answer"]
        assert sorted([*found[f"d{number}"], example["own"]]) == [0, 1, 2, 3]
    capsys.readouterr()
    assert score.main([str(output), "--gold", str(gold)]) == 0
    assert "accuracy            100.00" in capsys.readouterr().out


def test_scores_are_of_ranks(tmp_path, capsys):
    gold = tmp_path / "gold.txt"
    gold.write_text("".join(json.dumps({"id": f"d{k}", "answer": k}) + "\n" for k in range(4)))
    output = tmp_path / "predictions.json"
    output.write_text(json.dumps({"sections": {"d0": [0, 1], "d1": [2, 1], "d2": [0, 1]}}))
    assert score.main([str(output), "--gold", str(gold)]) == 0
    out = capsys.readouterr().out.split()
    assert dict(zip(out[::2], out[1::2], strict=True)).items() >= {"accuracy": "25.00", "mrr": "37.50"}.items()
    output.write_text(json.dumps({"sections": {"x": [0]}}))
    assert score.main([str(output), "--gold", str(gold)]) == 1
    assert "the gold files do not have 'x'" in capsys.readouterr().err
