"""Shares of targets and the search of the first rank, in threads."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from fairseq_poolingformer.tasks.summarization.task import of_the_first, share_targets
from tests.attention.sharding.ranks import in_threads

PAD = 1


class Counting(nn.Module):
    """A criterion that returns the sample it gets."""

    def __init__(self, sentence_avg=False, **settings):
        super().__init__()
        self.sentence_avg = sentence_avg
        vars(self).update(settings)

    def forward(self, model, sample):
        size = sample["target"].size(0) if self.sentence_avg else sample["ntokens"]
        return sample, size, {"nsentences": sample["target"].size(0), "sample_size": size}


@pytest.mark.parametrize("sentence_avg", [False, True])
@pytest.mark.parametrize("width", [1, 2, 7, 8])
def test_each_target_counts_in_one_rank(width, sentence_avg):
    target = torch.arange(2, 2 + 2 * width).view(2, width)
    target[1, width // 2 + 1 :] = PAD
    sample = {"target": target, "ntokens": int(target.ne(PAD).sum()), "net_input": {"src_tokens": target}}
    expected = Counting(sentence_avg)(None, sample)

    def rank(ranks):
        criterion = Counting(sentence_avg)
        share_targets(criterion, ranks, PAD)
        return criterion(None, sample)

    samples, sizes, logged = zip(*in_threads(3, rank), strict=True)
    assert (sum(sizes), sum(log["sample_size"] for log in logged)) == (expected[1],) * 2
    assert sum(log["nsentences"] for log in logged) == 2
    assert sum(share["ntokens"] for share in samples) == sample["ntokens"]
    assert len({share["target"].shape for share in samples}) == 1
    counted = torch.cat([share["target"].flatten() for share in samples])
    assert sorted(counted[counted != PAD].tolist()) == sorted(target[target != PAD].tolist())
    for share in samples:
        own, columns = share["target"], share["net_input"]["target_columns"]
        assert ((own == PAD) | (own == target[:, columns])).all()
        assert share["net_input"]["src_tokens"] is target


def test_a_prefix_that_does_not_count_is_refused():
    with pytest.raises(ValueError, match="--ignore-prefix-size does not go with --context-parallel-size"):
        share_targets(Counting(ignore_prefix_size=1), None, PAD)


def test_all_ranks_follow_the_search_of_the_first():
    def rank(ranks):
        search = SimpleNamespace(step=lambda number: [torch.full((2, 3), 10.0 * ranks.rank + number), torch.arange(3)])
        generator, before = SimpleNamespace(search=search), search.step
        with of_the_first(ranks, generator):
            found = search.step(4)
        assert search.step is before
        return found

    for scores, numbers in in_threads(3, rank):
        assert scores.unique().tolist() == [4.0]
        assert numbers.tolist() == [0, 1, 2]
    with of_the_first(None, object()):  # a scorer has no search
        pass
