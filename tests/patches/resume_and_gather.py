"""Each process of a two-process test runs this: a training, then a gathering of objects that cannot be summed.

Started by ``torchrun -m tests.patches.resume_and_gather`` with the arguments of fairseq-train.
"""

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq_cli import train


def train_and_gather(cfg):
    train.main(cfg)
    rank = distributed_utils.get_global_rank()
    gathered = distributed_utils.all_gather_list({"rank": rank, "words": ["a"] * (rank + 1)})
    assert gathered == [{"rank": 0, "words": ["a"]}, {"rank": 1, "words": ["a", "a"]}], gathered
    print(f"gathered on {rank}", flush=True)


if __name__ == "__main__":
    args = options.parse_args_and_arch(options.get_training_parser())
    distributed_utils.call_main(convert_namespace_to_omegaconf(args), train_and_gather)
