import contextlib

import pytest

from fairseq_poolingformer.tasks.summarization import scores

END = "Generate test with beam=5: x"
LINES = ["S-3\tx", "T-3\tfirst", "second", "H-3\t-1\ta", "D-3\t-1\tbest", "more", "P-3\t-1 -1"]


def test_texts_with_line_feeds_are_read_whole_and_the_best_hypothesis_is_kept_wherever_it_is():
    output = scores.read_generate_output({"out": [*LINES, "S-4\ty", "D-4\t-2\tnext", "noise", "P-5\t-1", END]})
    assert output.targets == {3: "first second"}
    assert output.hypotheses == {3: (-1, "best more"), 4: (-2, "next")}
    assert output.expected == {3, 4, 5}
    lines = ["D-0\t-2\tworse", "D-0\t-0.5\tbest", "D-0\t-1\tsecond"]
    assert scores.read_generate_output({"out": lines}).hypotheses == {0: (-0.5, "best")}


def test_inputs_that_were_read_and_not_generated_are_missing():
    output = scores.read_generate_output({"a": ["D-0\t-1\tx", "S-2\ty"], "b": ["D-1\t-1\tz"]})
    for count, message in ((None, "1 of 3 inputs have no hypothesis: 2"), (1, "also hypotheses for input 1")):
        with pytest.raises(ValueError, match=message):
            scores.in_input_order(output, count)
    assert scores.in_input_order(output, 2) == ["x", "z"]


def test_lines_end_at_line_feeds_only():
    content = "a\u2028b\r\n\x0bc\n\n".encode()
    assert scores.decode_lines(content, "x") == ["a\u2028b", "\x0bc", ""]
    assert scores.one_line(" a\u2028 b\x0bc\t") == "a b c"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["S-0\tx", "D-0\t-1\ta", "S-0\tx", "D-0\t-2\tb", END], "out, line 3: input 0 comes a second time"),
        (["D-0\t-1\ta", "D-1\t-1\tb", "D-0\t-2\tc"], "out, line 3: input 0 comes a second time"),
        (["S-0\tx", "T-0\ty", "D-0\t-1\ta"], "out: its end is missing"),
    ],
)
def test_several_runs_and_a_cut_run_are_refused(lines, message):
    with pytest.raises(ValueError, match=message):
        scores.read_generate_output({"out": lines})


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (["The first text here", "the second one <unk> c"], ""),
        (["\u2581The \u2581fir st \u2581text", "\u2581the \u2581se cond \u2581one"], ""),  # pieces, and cut
        (["464 717", "464 1218 530"], ""),  # GPT-2's symbols, which say nothing
        (["something else entirely", "of another split"], "2 of 2 references are not those of the generated inputs"),
        (["the second one is cut", "The first text here"], "2 of 2 references are not those of the generated inputs"),
        (["The first text", "the second one", "of another split"], ""),
        (["The first text here", "of another split"], ""),  # half of them, and not more
        (["The first other words", "the second other words"], ""),  # half of the words of each
        (["The first text", "something else", "of another split"], "2 of 3 references are not those"),
    ],
)
def test_references_of_other_inputs_are_refused(targets, message):
    output = scores.Generated(targets=dict(enumerate(targets)))
    references = ["The first text here is whole.", "the second one is cut", "and the third"][: len(targets)]
    with pytest.raises(ValueError, match=message) if message else contextlib.nullcontext():
        scores.check_references(output, references)


def test_symbols_leave_references_in_linear_time():
    """In quadratic time a run of angles takes an hour."""
    texts = ["a <<unk>> b <unk><pad>> c", "<" * 10**6 + "unk"]
    output = scores.Generated(targets=dict(enumerate(texts)))
    scores.check_references(output, ["a b c", texts[1]])
    assert scores._SYMBOLS.sub("", texts[0]) == "a  b  c"
