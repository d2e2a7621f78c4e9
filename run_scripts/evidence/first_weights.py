"""Write the weights that the start is trained from: random ones that already lean towards copying.

    python run_scripts/evidence/first_weights.py CHECKPOINT.pt [--seed 1] -- DATA FLAG…

The flags are those of fairseq-train that choose the model and the task. From fairseq's own random weights, a small
model does not find out within 4 million tokens that another occurrence of a name tells its spelling.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from fairseq import options, tasks
from fairseq.modules import SinusoidalPositionalEmbedding
from torch import nn

from fairseq_poolingformer.text.atomic_write import atomic_write
from fairseq_poolingformer.weights.files import write_checkpoint

TOKEN, POSITION, CONTEXT = 0.1, 0.03, 0.15  # sizes of what is added up at the bottom


@torch.no_grad()
def lean_towards_copying(encoder: nn.Module, mask_index: int) -> None:
    """Make tokens in similar contexts attend to each other, and attended tokens more probable.

    The two lower layers, whose windows are narrow, add a mixture of the neighbours to each token. The upper layers
    compare these contexts (W_k = W_q) and hand on what they find (W_v = W_o = I); the head, whose embeddings are tied,
    passes it on. A masked token has no content but its context. Training changes all of this.
    """
    body = encoder.sentence_encoder
    nn.init.normal_(body.embed_tokens.weight, std=TOKEN)
    body.embed_tokens.weight[[body.padding_idx, mask_index]] = 0
    if body.embed_positions is not None:
        positions = body.embed_positions
        table = SinusoidalPositionalEmbedding.get_embedding(*positions.weight.shape, positions.padding_idx)
        positions.weight.copy_(table * POSITION * 2**0.5)  # a sinusoid has a mean square of a half
    half = len(body.layers) // 2
    for layer in body.layers[:half]:
        for projection, gain in ((layer.self_attn.v_proj, 1.0), (layer.self_attn.out_proj, CONTEXT)):
            nn.init.orthogonal_(projection.weight, gain)
    for layer in body.layers[half:]:
        attention = layer.self_attn
        nn.init.orthogonal_(attention.q_proj.weight)
        attention.k_proj.load_state_dict(attention.q_proj.state_dict())
        nn.init.eye_(attention.v_proj.weight)
        nn.init.eye_(attention.out_proj.weight)
    nn.init.eye_(encoder.lm_head.dense.weight)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("flags", nargs="+", metavar="FLAG", help="after --")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    args = options.parse_args_and_arch(options.get_training_parser(), given.flags)
    torch.manual_seed(given.seed)
    task = tasks.setup_task(args)
    model = task.build_model(args)
    lean_towards_copying(model.encoder, task.mask_idx)
    given.checkpoint.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(given.checkpoint) as path:
        write_checkpoint(path, vars(args), model.state_dict())


if __name__ == "__main__":
    main()
