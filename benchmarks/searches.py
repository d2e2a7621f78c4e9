"""Compare the summaries of fairseq's search with those of transformers' ``generate``, same weights, same documents.

    python benchmarks/searches.py run/checkpoint_best.pt documents.jsonl --documents 50

The documents are lines of JSON with ``article_text``, a list of sentences, as in the arXiv and PubMed data. Each is
summarized three times: by fairseq's search, by ``generate`` as people call it (``num_beams=5, length_penalty=2``), and
by ``generate`` under fairseq's conditions (docs/summarization.md). Where the best summaries differ, the
log-probability of both under the model says which search found the better one.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_poolingformer.cli import convert
from fairseq_poolingformer.command import load_fairseq

BOS, PAD, EOS = 0, 1, 2


def read(path: Path, number: int) -> list[str]:
    """Return the texts of the first documents."""
    open_text = gzip.open if path.suffix == ".gz" else open
    with open_text(path, "rt", encoding="utf-8") as lines:
        return [" ".join(json.loads(line)["article_text"]) for line in islice(lines, number)]


def fairseq_search(hub: Any, document: Tensor, beam: int, lenpen: float, longest: int) -> list[int]:
    """Return the tokens that fairseq writes, without the last ``</s>``."""
    limits = {"beam": beam, "max_len_b": longest, "lenpen": lenpen}
    (found,) = hub.generate([document], **limits)
    return found[0]["tokens"][:-1].tolist()


def transformers_search(model: Any, document: Tensor, beam: int, lenpen: float, longest: int, **own: Any) -> list[int]:
    """Return the tokens that transformers writes, without the decoder's first token and the last ``</s>``."""
    settings = {"num_beams": beam, "length_penalty": lenpen, "max_length": longest + 2, "do_sample": False}
    found = model.generate(document[None], attention_mask=torch.ones_like(document)[None], **settings, **own)
    tokens = found[0, 1:].tolist()
    return tokens[: tokens.index(EOS)] if EOS in tokens else tokens


def fairseq_conditions(model: Any, longest: int) -> dict[str, Any]:
    """Return the options of ``generate`` for fairseq's conditions."""
    words = [token for token in range(model.config.vocab_size) if token != PAD]

    def allowed(row: int, tokens: Tensor) -> list[int]:
        return [BOS] if len(tokens) == 1 else [EOS] if len(tokens) == longest + 1 else words

    forced = {"forced_bos_token_id": None, "forced_eos_token_id": None}
    return {**forced, "early_stopping": True, "prefix_allowed_tokens_fn": allowed}


@torch.no_grad()
def score(model: Any, document: Tensor, tokens: list[int], lenpen: float) -> float:
    """Return the log-probability of a summary and its ``</s>``, divided by length to the power ``lenpen``."""
    target = torch.tensor([*tokens, EOS])
    inputs = torch.tensor([[EOS, *tokens]])
    logits = model(document[None], decoder_input_ids=inputs).logits[0]
    return float(logits.log_softmax(-1).gather(1, target[:, None]).sum()) / len(target) ** lenpen


def report(ours: list[list[int]], theirs: list[list[int]], scores: list[tuple[float, float]], name: str) -> None:
    """Print how many summaries are equal, and whose are more likely where they differ."""
    different = [pair for a, b, pair in zip(ours, theirs, scores, strict=True) if a != b]
    better = sum(first > second for first, second in different)
    equal = f"{len(ours) - len(different)} of {len(ours)} equal"
    print(f"{name}: {equal}; fairseq's more likely in {better}, transformers' in {len(different) - better}", flush=True)


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, help="fairseq checkpoint of a Poolingformer-BART, with its tokenizer")
    parser.add_argument("lines", type=Path, help="documents, .jsonl or .gz")
    parser.add_argument("--documents", type=int, default=50, help="how many of them (default: 50)")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--lenpen", type=float, default=2.0)
    parser.add_argument("--max-len-b", type=int, default=64, help="tokens of a summary at most (default: 64)")
    options = parser.parse_args()
    load_fairseq()
    from fairseq_poolingformer.huggingface import PoolingformerBartForConditionalGeneration
    from fairseq_poolingformer.models import PoolingformerBART

    search = (options.beam, options.lenpen, options.max_len_b)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        if convert.main(["to-huggingface", str(options.checkpoint), str(folder)]):
            raise SystemExit(1)
        model = PoolingformerBartForConditionalGeneration.from_pretrained(folder).eval()
    hub = PoolingformerBART.from_pretrained(str(options.checkpoint.parent), options.checkpoint.name).eval()
    documents = [hub.encode(text) for text in read(options.lines, options.documents)]
    print(f"{len(documents)} documents of {min(map(len, documents))} to {max(map(len, documents))} tokens")
    ours = [fairseq_search(hub, document, *search) for document in documents]
    lengths, texts = [len(tokens) for tokens in ours], {tuple(tokens) for tokens in ours}
    print(f"fairseq writes {min(lengths)} to {max(lengths)} tokens, {len(texts)} different texts", flush=True)
    as_usual = {"forced_bos_token_id": BOS, "forced_eos_token_id": EOS}
    for name, own in (
        ("generate, its own defaults", as_usual),
        ("generate, early_stopping=True", {**as_usual, "early_stopping": True}),
        ("generate, fairseq's conditions", fairseq_conditions(model, options.max_len_b)),
    ):
        theirs = [transformers_search(model, document, *search, **own) for document in documents]
        scores = [
            tuple(score(model, document, tokens, options.lenpen) for tokens in pair)
            for document, *pair in zip(documents, ours, theirs, strict=True)
        ]
        report(ours, theirs, scores, name)


if __name__ == "__main__":
    main()
