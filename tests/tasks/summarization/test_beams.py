"""All five hypotheses of a beam search, in order and with their scores, against transformers' ``generate``.

docs/summarization.md lists how the two searches differ. Here transformers gets fairseq's conditions: a function of
allowed tokens in place of its forced ones, ``early_stopping=True``, and no probability for ``<mask>``.
"""

import math
from argparse import Namespace

import pytest
import torch

from fairseq_poolingformer.cli import convert
from fairseq_poolingformer.models import PoolingformerBART
from tests.models import tiny_huggingface

BOS, PAD, EOS = 0, 1, 2
BEAM, LIMIT = 5, 12  # a summary has LIMIT tokens and </s> at most


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Both models, of equal weights; with more for </s>, so that summaries end between 2 tokens and the limit."""
    path = tmp_path_factory.mktemp("bart")
    source = tiny_huggingface.folder(path / "hf", "bart")
    arguments = ["to-fairseq", source, path / "fairseq", "--arch", "poolingformer_bart_base"]
    assert convert.main([str(argument) for argument in arguments]) == 0
    ours = PoolingformerBART.from_pretrained(str(path / "fairseq"), window_size="64", pooled_layers="none").eval()
    theirs = tiny_huggingface.MODELS["bart"].from_pretrained(source).eval()
    theirs.final_logits_bias[0, -1] = -1e9  # <mask>, for which the model here has no row
    theirs.final_logits_bias[0, EOS] = 3
    output_layer = ours.model.decoder.output_layer
    ours.model.decoder.output_layer = lambda features: output_layer(features) + theirs.final_logits_bias[0, :-1]
    return ours, theirs


@pytest.fixture(scope="module")
def documents():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(5, 36, (8,), generator=generator).tolist()
    words = [torch.randint(4, 250, (length,), generator=generator).tolist() for length in lengths]
    return [torch.tensor([BOS, *document, EOS]) for document in words]


def ours_search(hub, document, least, lenpen):
    limits = {"beam": BEAM, "nbest": BEAM, "max_len_b": LIMIT, "min_len": least, "lenpen": lenpen}
    generator = hub.task.build_generator([hub.model], Namespace(**limits))
    inputs = {"src_tokens": document[None], "src_lengths": torch.tensor([len(document)])}
    (beam,) = hub.task.inference_step(generator, [hub.model], {"net_input": inputs})
    return [(hypothesis["tokens"].tolist(), float(hypothesis["score"])) for hypothesis in beam]


def their_search(model, document, lenpen, **settings):
    settings |= {"num_beams": BEAM, "num_return_sequences": BEAM, "do_sample": False, "length_penalty": lenpen}
    settings |= {"max_length": LIMIT + 2}  # with the </s> that the decoder begins with, and the last one
    settings |= {"attention_mask": torch.ones_like(document)[None], "output_scores": True}
    beams = model.generate(document[None], return_dict_in_generate=True, **settings)
    tokens = [row[1:] for row in beams.sequences.tolist()]
    tokens = [row[: row.index(EOS) + 1] for row in tokens]
    return list(zip(tokens, beams.sequences_scores.tolist(), strict=True))


def as_fairseq(model, least):
    """transformers' options for fairseq's conditions."""
    words = [token for token in range(model.config.vocab_size) if token not in (PAD, EOS)]

    def allowed(row, tokens):
        written = len(tokens) - 1
        if written == 0:
            return [BOS]
        if written == LIMIT:
            return [EOS]
        return words if written < least else [EOS, *words]

    forced = {"forced_bos_token_id": None, "forced_eos_token_id": None}
    return {**forced, "prefix_allowed_tokens_fn": allowed, "early_stopping": True}


@pytest.mark.parametrize(("least", "lenpen"), [(1, 0.0), (LIMIT, 0.0), (LIMIT, 2.0)])
@torch.no_grad()
def test_all_hypotheses_are_equal_under_the_same_conditions(models, documents, least, lenpen):
    ours, theirs = models
    lengths = set()
    for document in documents:
        beam = ours_search(ours, document, least, lenpen)
        expected = their_search(theirs, document, lenpen, **as_fairseq(theirs, least))
        assert [tokens for tokens, _ in beam] == [tokens for tokens, _ in expected]
        assert [score for _, score in beam] == pytest.approx([score for _, score in expected], abs=1e-4)
        lengths |= {len(tokens) for tokens, _ in beam}
    assert len(lengths) > 4 if least == 1 else lengths == {LIMIT + 1}


@pytest.mark.full
@torch.no_grad()
def test_the_best_hypothesis_is_equal_with_a_length_penalty_too(models, documents):
    """The others differ where one step ends more than are wanted: fairseq keeps the first, transformers the best."""
    ours, theirs = models
    equal = 0
    for document in documents:
        beam = ours_search(ours, document, 1, 2.0)
        expected = their_search(theirs, document, 2.0, **as_fairseq(theirs, 1))
        assert beam[0][0] == expected[0][0]
        equal += [tokens for tokens, _ in beam] == [tokens for tokens, _ in expected]
    assert equal < len(documents)


@pytest.mark.full
@torch.no_grad()
def test_forced_tokens_are_free_in_transformers_and_scored_in_fairseq(models, documents):
    """The sums of a hypothesis differ by the log-probabilities of the first <s> and of the </s> at the limit."""
    ours, theirs = models
    forced = {"forced_bos_token_id": BOS, "forced_eos_token_id": EOS, "early_stopping": True}
    checked = 0
    for document in documents:
        settings = {**forced, "min_length": LIMIT + 1, "suppress_tokens": [PAD]}
        expected = {tuple(tokens): score for tokens, score in their_search(theirs, document, 0.0, **settings)}
        for tokens, score in ours_search(ours, document, LIMIT, 0.0):
            if tuple(tokens) in expected:
                inputs = torch.tensor([[EOS, *tokens[:-1]]])
                lprobs = theirs(document[None], decoder_input_ids=inputs).logits[0].log_softmax(-1)
                missing = float(lprobs[0, BOS] + lprobs[LIMIT, EOS])
                assert score == pytest.approx(expected[tuple(tokens)] + missing, abs=1e-4)
                assert -math.inf < missing < -0.01
                checked += 1
    assert checked > 20
