"""The task of question answering, built by fairseq's own options."""

from fairseq import options, tasks

from tests.models.tiny_bart import USER_DIR


def build_task(folder, *flags, arch="poolingformer_roberta_tiny"):
    """Return ``(args, task)``."""
    arguments = [
        *(str(folder), "--user-dir", USER_DIR, "--task", "question_answering", "--arch", arch, "--cpu"),
        *("--criterion", "question_answering", "--max-positions", "24", "--doc-stride", "8"),
        *("--max-question-length", "6", "--seed", "3", *flags),
    ]
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    return args, tasks.setup_task(args)
