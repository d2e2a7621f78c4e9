import logging

import numpy as np
import pytest
import torch
from fairseq import options, scoring
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.sequence_generator import SequenceGenerator
from torch.utils._python_dispatch import TorchDispatchMode

import fairseq_poolingformer.tasks.summarization.task  # noqa: F401  (registers)
from fairseq_poolingformer.attention.backends import sdpa
from fairseq_poolingformer.tasks.summarization.task import LongSummarizationConfig, LongSummarizationTask
from tests.models.tiny_bart import SIZES, build, parse, write_data_folder

BOS, PAD, EOS = 0, 1, 2
EXAMPLES = [([4 + n % 20] * (3 + 7 * n), [4 + n % 5] * (1 + n)) for n in range(8)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    splits = {"train": EXAMPLES, "valid": EXAMPLES[:3], "test": EXAMPLES}
    return write_data_folder(tmp_path_factory.mktemp("data"), splits=splits)


def batch_of(task, split):
    dataset = task.dataset(split)
    return dataset.collater([dataset[n] for n in range(len(dataset))])


def test_both_sides_are_framed_as_bart_wants_them(folder):
    task, _ = build(folder, *SIZES)
    task.load_dataset("train")
    sample = batch_of(task, "train")
    source, target = sample["net_input"]["src_tokens"], sample["target"]
    previous = sample["net_input"]["prev_output_tokens"]
    assert (source[:, 0] == BOS).all()
    assert (target[:, 0] == BOS).all()
    assert (previous[:, :2] == torch.tensor([EOS, BOS])).all()
    for row, index in enumerate(sample["id"].tolist()):
        document, summary = EXAMPLES[index]
        assert source[row].tolist() == [BOS, *document, EOS, *[PAD] * (source.size(1) - len(document) - 2)]
        assert target[row][target[row] != PAD].tolist() == [BOS, *summary, EOS]


def add_queries(folder, split, lengths):
    builder = MMapIndexedDatasetBuilder(str(folder / f"{split}.query.bin"), dtype=np.int32)
    for length in lengths:
        builder.add_item(torch.tensor([length]))
    builder.finalize(str(folder / f"{split}.query.idx"))


def test_the_tokens_of_a_question_are_global(tmp_path):
    write_data_folder(tmp_path, splits={"train": EXAMPLES, "test": EXAMPLES})
    add_queries(tmp_path, "train", lengths := [2 * n for n in range(len(EXAMPLES))])
    task, model = build(tmp_path, *SIZES, "--window-size", "2", "--max-source-positions", "12")
    task.load_dataset("train")
    task.load_dataset("test")
    sample, plain = batch_of(task, "train"), batch_of(task, "test")
    mask = sample["net_input"]["global_mask"]
    assert "global_mask" not in plain["net_input"]
    assert mask.shape == sample["net_input"]["src_tokens"].shape
    assert mask.sum(1).tolist() == [min(12, 1 + lengths[index]) for index in sample["id"].tolist()]
    with torch.no_grad():
        (logits, _), (usual, _) = model(**sample["net_input"]), model(**plain["net_input"])
        features, _ = model(**sample["net_input"], features_only=True)
        encoded = model.encoder(sample["net_input"]["src_tokens"], global_mask=mask)
        expected, _ = model.decoder(sample["net_input"]["prev_output_tokens"], encoder_out=encoded)
    assert torch.equal(logits, expected)
    assert torch.equal(model.decoder.output_layer(features), logits)
    by_index = {index: row for row, index in enumerate(sample["id"].tolist())}
    assert torch.equal(logits[by_index[0]], usual[by_index[0]]), "the first token alone, which is global anyhow"
    assert not torch.allclose(logits[by_index[6]], usual[by_index[6]])
    generator = SequenceGenerator([model], task.tgt_dict, beam_size=1, max_len_b=12)
    beams = [task.inference_step(generator, [model], batch)[by_index[6]][0] for batch in (sample, plain)]
    assert len({float(beam["positional_scores"].sum()) for beam in beams}) == 2
    task, _ = build(tmp_path, *SIZES, "--global-tokens", "0")
    task.load_dataset("train")
    assert "global_mask" not in batch_of(task, "train")["net_input"], "of a model without global tokens"


def test_truncation_is_to_the_models_length_counted_and_logged(folder, caplog):
    task, _ = build(folder, *SIZES, "--max-source-positions", "20", "--max-target-length", "5")
    with caplog.at_level(logging.INFO):
        task.load_dataset("train")
    assert max(task.dataset("train").src_sizes) == 20
    assert "train: 5 of 8 documents cut to 20 tokens (42.4% of all tokens lost)" in caplog.text, "100 of 236"
    assert "train: 5 of 8 summaries cut to 5 tokens" in caplog.text
    assert (batch_of(task, "train")["net_input"]["src_tokens"].size(1)) == 20


def test_the_length_is_the_models_unless_a_shorter_one_is_asked_for(folder):
    sizes = (*SIZES, "--max-source-positions", "20")
    task, _ = build(folder, *sizes)
    # documents that are handed over may have their <s>
    for tokens, expected in ([[5, 6, EOS]] * 2, [[BOS, 5, 6, EOS], [5, 6, EOS]], [[5] * 30 + [EOS], [5] * 18 + [EOS]]):
        dataset = task.build_dataset_for_inference([torch.tensor(tokens)], [len(tokens)])
        assert dataset[0]["source"].tolist() == [BOS, *expected]
    for asked, length in [(None, 20), (10, 10), (100, 20)]:  # fairseq-generate has the model's flags of its checkpoint
        task.cfg.max_source_positions = asked
        generating = type(task)(task.cfg, task.src_dict, task.tgt_dict)
        generating.build_model(parse(folder, *sizes))
        assert generating.max_positions() == (length, 1024)


def test_epochs_take_turns_with_data_folders_and_validation_keeps_the_first(folder, tmp_path):
    write_data_folder(tmp_path, splits={"train": EXAMPLES[:2], "valid": EXAMPLES[:1]})
    task, _ = build(f"{folder}:{tmp_path}", *SIZES)
    for epoch, count in ((1, 8), (2, 2), (3, 8)):
        task.load_dataset("train", epoch=epoch)
        assert len(task.dataset("train")) == count
        task.load_dataset("valid", epoch=epoch)
        assert len(task.dataset("valid")) == 3


def test_rouge_of_validation_is_the_mean_over_summaries_not_over_batches(folder, monkeypatch):
    task, model = build(folder, *SIZES)
    task.load_dataset("valid")
    task.cfg.eval_rouge = True
    criterion = LabelSmoothedCrossEntropyCriterion(task, sentence_avg=False, label_smoothing=0.1)
    batches = iter([(["we pool", "no", "no"], ["we pool", "yes", "yes"]), (["we pool"], ["we pool"])])
    monkeypatch.setattr(task, "_summarize", lambda sample, model: next(batches))
    logs = [task.valid_step(batch_of(task, "valid"), model, criterion)[2] for _ in range(2)]
    with metrics.aggregate() as aggregated:
        task.reduce_metrics(logs, criterion)
    for name in ("rouge1", "rouge2", "rougeL", "rougeLsum"):
        assert aggregated.get_smoothed_value(name) == 50, "two of four"


def test_references_are_scored_whole_and_none_is_left_out(folder):
    """fairseq-generate leaves out, or stops at, examples that are longer than the decoder takes."""
    task, model = build(folder, *SIZES, "--max-target-positions", "5")
    task.load_dataset("test")
    assert max(len(example["target"]) for example in task.dataset("test")) == 10
    limits = {"max_sentences": 3, "max_positions": task.max_positions(), "num_workers": 0}
    batches = list(task.get_batch_iterator(task.dataset("test"), **limits).next_epoch_itr(shuffle=False))
    assert sorted(n for batch in batches for n in batch["id"].tolist()) == list(range(8))
    criterion = LabelSmoothedCrossEntropyCriterion(task, sentence_avg=False, label_smoothing=0.1)
    tokens = sum(task.valid_step(batch, model, criterion)[1] for batch in batches)
    assert tokens == sum(min(len(summary) + 2, 5) for _, summary in EXAMPLES)


def test_a_folder_of_another_kind_and_a_model_without_a_decoder_are_refused(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"dict\.source\.txt: not found; give a data folder made with .* arxiv"):
        LongSummarizationTask.setup_task(LongSummarizationConfig(data=str(tmp_path)))
    with pytest.raises(ValueError, match="Roberta is an encoder alone, and this task trains an encoder with a decoder"):
        build(folder, arch="poolingformer_roberta_tiny")


def generate(task, model, indices, **options):
    """The tokens of all hypotheses by example."""
    generator = task.build_generator([model], type("Options", (Namespace5,), options))
    sample = task.dataset("test").collater([task.dataset("test")[n] for n in indices])
    beams = task.inference_step(generator, [model], sample)
    return {int(n): [h["tokens"].tolist() for h in beam] for n, beam in zip(sample["id"], beams, strict=True)}


@pytest.mark.parametrize("batch_size", [3, *(pytest.param(size, marks=pytest.mark.full) for size in (1, 8))])
def test_beams_share_one_source_and_batches_change_nothing(folder, batch_size):
    """Beam 5 over batches of any size gives what beam 5 gives one document at a time."""
    task, model = build(folder, *SIZES, "--window-size", "4", seed=3)
    task.load_dataset("test")
    together, alone = (
        {
            n: beam
            for begin in range(0, 8, size)
            for n, beam in generate(task, model, range(8)[begin : begin + size]).items()
        }
        for size in (batch_size, 1)
    )
    assert together == alone
    assert [len(hypotheses) for hypotheses in together.values()] == [5] * 8


@pytest.mark.full
def test_beam_sizes_may_follow_one_another(folder):
    """fairseq leaves the beam size of the last generation in the model."""
    (task, model), (_, fresh) = (build(folder, *SIZES, "--window-size", "4", seed=3) for _ in range(2))
    task.load_dataset("test")
    beams = [{size: generate(task, model, range(8), beam=size, nbest=1) for size in (1, 5, 2)} for _ in range(2)]
    assert beams[0] == beams[1]
    assert generate(task, fresh, range(8), beam=1, nbest=1) == beams[0][1]


class Copies(TorchDispatchMode):
    """Counts the operations that make a tensor of so many elements or more."""

    def __init__(self, elements: int):
        super().__init__()
        self.elements, self.count = elements, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.numel() >= self.elements:
            inputs = {x.untyped_storage().data_ptr() for x in args if isinstance(x, torch.Tensor)}
            self.count += result.untyped_storage().data_ptr() not in inputs
        return result


@pytest.mark.parametrize(("beam", "on_a_gpu"), [(1, False), (5, False), (5, True)])
def test_no_step_of_generation_copies_the_source(folder, beam, on_a_gpu, monkeypatch):
    """As many tensors of the source's size are made for four tokens as for nine."""
    if on_a_gpu:
        monkeypatch.setattr(sdpa, "takes", lambda x: True)
    task, model = build(folder, *SIZES)
    source = torch.randint(4, 30, (2, 1100))
    source[1, 900:] = PAD
    sample = {"net_input": {"src_tokens": source, "src_lengths": torch.tensor([1100, 900])}}
    counts = []
    for length in (4, 9):
        limits = {"beam": beam, "min_len": length - 1, "max_len_b": length}
        generator = task.build_generator([model], type("Options", (Namespace5,), limits))
        with Copies(source.numel() * 32) as copies:
            hypotheses = task.inference_step(generator, [model], sample)
        assert {len(h[0]["tokens"]) for h in hypotheses} == {length + 1}
        counts.append(copies.count)
    assert counts[0] == counts[1] > 0


class Namespace5:
    """Generation options, as fairseq reads them from a namespace."""

    beam, max_len_a, max_len_b, lenpen, nbest = 5, 0, 15, 2.0, 5


def test_the_result_of_the_scorer():
    words = ["data", "--path", "model.pt", "--scoring", "rouge"]
    args = options.parse_args_and_arch(options.get_generation_parser(), words)
    scorer = scoring.build_scorer(convert_namespace_to_omegaconf(args).scoring, None)
    scorer.add_string("We pool keys. It helps.", "It helped. We pooled keys.")
    scorer.add_string("A window.", "")
    text = scorer.result_string()
    assert text.startswith("ROUGE of 2 examples (rouge-score; stemming on; mean")
    assert "ROUGE-Lsum  P 50.00 [" in text
    assert scorer.score() == pytest.approx(100 * (0.5 + 0.375 + 0.5) / 3)
    scorer.reset()
    assert scorer.score() == 0
    assert scorer.result_string() == "ROUGE of 0 examples: nothing to score"
