"""What a file holds as a whole: data, without cycles, and not endless in effect."""

import pytest
import torch

from fairseq_poolingformer.checkpoint_reader.errors import Refused
from fairseq_poolingformer.checkpoint_reader.whole import DEEPEST, MOST_SHARING, Name, check_whole


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


def test_data_is_accepted():
    check_whole({"a": nested(DEEPEST - 1), "b": (1, "text", b"bytes", {2.5}), "c": torch.ones(3)}, 1000)


def cycle():
    value = {}
    value["itself"] = [value]
    return value


def doubled():
    value = [1, 2]
    for _ in range(60):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (cycle, "holds itself"),
        (lambda: nested(DEEPEST + 2), "nested more than 100 deep"),
        (doubled, "endless in effect"),
        (lambda: [torch.ones(2**18).expand(2, -1)] * (MOST_SHARING // 2 + 1), "share their storages"),
        (lambda: {"a": Name("os.system"), "b": [Name("x.Y")]}, "it refers to os.system, x.Y, and a checkpoint may"),
        (lambda: [object()], "a value that it does not finish"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(Refused, match=message):
        check_whole(make(), 2**20)
