"""``poolingformer who-sees-whom``: which tokens reach which in the layers of a model of transformers'."""

from __future__ import annotations

import argparse
import sys

from fairseq_poolingformer.command import positive, run_command


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status: 1 where a layer sees what it should not."""
    return run_command(make_parser(), run, arguments)


def make_parser() -> argparse.ArgumentParser:
    says = "Find by gradients which tokens reach which in each layer of an encoder or decoder of transformers': "
    says += "windows that are not what the configuration says, padding and other documents of a row that are seen."
    parser = argparse.ArgumentParser(prog="poolingformer who-sees-whom", description=says)
    parser.add_argument("model", metavar="MODEL", help="a folder, or a name on the Hugging Face Hub")
    parser.add_argument("--attention", metavar="NAME", help="attn_implementation, such as band (default: the model's)")
    text = "of the texts in tokens (default: a few)"
    parser.add_argument("--lengths", type=positive, nargs="+", metavar="N", help=text)
    return parser


def run(options: argparse.Namespace) -> int:
    """Print what each layer sees, and return 1 where there are findings."""
    from fairseq_poolingformer.huggingface import who_sees_whom  # first, since it says what to install

    # isort: split
    from transformers import AutoModel

    model = AutoModel.from_pretrained(options.model, attn_implementation=options.attention)
    reaches, findings = who_sees_whom(model, tuple(options.lengths or ()))
    for layer, (left, right) in enumerate(reaches):
        print(f"layer {layer}: {left} tokens on the left, {right} on the right")
    print("\n".join(findings) or "as the configuration says; no padding and no other document is seen")
    if findings:
        print(f"{len(findings)} finding{'s' * (len(findings) > 1)} in {options.model}", file=sys.stderr)
    return int(bool(findings))
