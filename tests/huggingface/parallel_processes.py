"""What a few gloo processes compute for test_parallel.py: each writes losses, and the first one summed gradients."""

import os
import signal
import sys
import traceback
from contextlib import nullcontext, suppress
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as distributed

from fairseq_poolingformer.huggingface import context_parallel

SIZE, LIMIT = 4, timedelta(seconds=280)
TRAINED = {"random_position_offsets": True}
DROPOUT = {**TRAINED, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.3}
SUMMARIES = {**TRAINED, "dropout": 0.0, "attention_dropout": 0.3}
CASES = {  # what model_and_batch takes, settings of a training, and tokens of the batch
    "masked LM": (("roberta", "ForMaskedLM"), None, 20),
    "questions": (("modernbert", "ForQuestionAnswering"), {}, 20),
    "summaries": (("bart", "ForConditionalGeneration"), SUMMARIES, 20),
    "dropout": (("roberta", "ForMaskedLM"), DROPOUT, 20),
    "fewer tokens than ranks": (("bert", "ForMaskedLM"), None, 3),
    "fewer tokens, rotary": (("modernbert", "ForSequenceClassification"), None, 2),
}


def step(name, group):
    """Loss, gradients and parameters of an optimizer's step; of a group None, of this process alone."""
    from tests.huggingface.test_parallel import model_and_batch  # which imports this module

    arguments, training, tokens = CASES[name]
    model, given = model_and_batch(*arguments, **training or {})
    given = {name: x[:, :tokens].contiguous() if x.shape[1:2] == (20,) else x for name, x in given.items()}
    if training is not None:
        model.train()
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-3)
    torch.manual_seed(7 if group is None or not group.rank() else 8)  # the ranks' generators may differ
    with nullcontext() if group is None else context_parallel(model, group):
        loss = model(**given).loss
        loss.backward()
    loss = loss.detach()
    if group is not None:
        for x in (loss, *(p.grad for p in model.parameters() if p.grad is not None)):
            distributed.all_reduce(x, group=group)
    optimizer.step()
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"loss": loss, "grads": grads, "parameters": {name: p.detach() for name, p in model.named_parameters()}}


def run(rank, folder):
    rendezvous = {"init_method": f"file://{folder}/init", "rank": rank, "world_size": SIZE}
    distributed.init_process_group("gloo", **rendezvous, timeout=LIMIT)
    for number in range(1, SIZE + 1):
        group = distributed.new_group(list(range(number)), timeout=LIMIT)
        for name in CASES if rank < number else ():
            found = step(name, group)
            if rank == 0:
                torch.save(found, Path(folder, f"{name} {number}.pt"))
    distributed.barrier()


def main(folder):
    """Fork the processes, so that they import once."""
    import tests.huggingface.test_parallel  # noqa: F401, which takes long

    torch.set_num_threads(1)
    children = []
    for rank in range(SIZE):
        children.append(os.fork())
        if not children[-1]:
            try:
                run(rank, folder)
                os._exit(0)
            finally:
                traceback.print_exc()
                os._exit(1)
    if any(os.wait()[1] for _ in children):  # from the first one that fails
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
