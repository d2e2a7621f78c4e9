"""Patches with which fairseq works on current Python, torch and numpy, survives long jobs, and reads strangers' files.

A patch is a function that takes fairseq's function, then its arguments, and runs in its place; its first lines say why.
For everything that is not this plugin's it does what fairseq's own function, its ``__wrapped__``, does. The lists below
are the only ones; a name that fairseq no longer has ends the import with a sentence.
"""

import sys
from importlib import import_module

from fairseq import checkpoint_utils, options, sequence_generator, tasks, trainer, utils
from fairseq.data import Dictionary, indexed_dataset, iterators
from fairseq.distributed import utils as distributed
from fairseq.file_io import PathManager
from fairseq.hub_utils import GeneratorHubInterface
from fairseq.models import distributed_fairseq_model
from fairseq.models.ema import EMA
from fairseq.models.roberta.hub_interface import RobertaHubInterface
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.optim import FP16Optimizer
from fairseq.tasks.translation import TranslationTask
from hydra._internal import utils as hydra_utils

from fairseq_poolingformer.patches import (
    best_checkpoint,
    command_lines,
    computation,
    forgotten_task,
    generation_shards,
    half_precision,
    interruption,
    libraries,
    nonfinite,
    processes,
    restart,
    resuming,
    saving,
    untrusted_files,
)
from fairseq_poolingformer.patching import command_module, replace, stand_in, substitute

Trainer, EpochBatchIterator = trainer.Trainer, iterators.EpochBatchIterator
fairseq_train, fairseq_generate, fairseq_validate = (
    command_module(f"fairseq_cli.{name}") for name in ("train", "generate", "validate")
)

# done once, at once
DONE_AT_ONCE = (
    libraries.require_safe_torch,
    libraries.use_apex_only_with_its_kernels,
    libraries.restore_compat_of_numpy,
    libraries.keep_freed_memory_without_a_gpu,
    libraries.hide_warnings_about_fairseq,
    untrusted_files.evaluate_literals_only,
)

# whose function, its name, the patch; a later patch of the same function goes around an earlier one
AROUND = (
    # checkpoints are data, and one that cannot be used is a sentence
    (stand_in(checkpoint_utils, "torch"), "load", untrusted_files.read_as_data),
    (stand_in(distributed, "torch"), "load", untrusted_files.read_what_processes_sent),
    (checkpoint_utils, "load_model_ensemble_and_task", untrusted_files.explain_unusable_model),
    (checkpoint_utils, "load_model_ensemble_and_task", nonfinite.refuse_nonfinite_models),
    (checkpoint_utils, "load_model_ensemble_and_task", forgotten_task.refuse_checkpoint_of_another_task),
    (Trainer, "load_checkpoint", resuming.refuse_missing_or_unfit_checkpoint),
    # files and addresses that a checkpoint's options name
    (fairseq_validate, "main", untrusted_files.use_options_of_a_checkpoint),
    (GeneratorHubInterface, "__init__", untrusted_files.use_options_of_a_checkpoint),
    (RobertaHubInterface, "__init__", untrusted_files.use_options_of_a_checkpoint),
    # dictionaries and datasets are checked
    (Dictionary, "add_from_file", untrusted_files.check_dictionary),
    (indexed_dataset, "make_dataset", untrusted_files.check_stored_dataset),
    # processes that read data end, and a loss of nothing is none
    (EpochBatchIterator, "__init__", processes.end_workers_with_their_epoch),
    (iterators.CountingIterator, "__next__", processes.release_after_the_last_item),
    (Trainer, "get_valid_iterator", command_lines.refuse_split_that_counts_nothing),
    # options of commands
    (options, "parse_args_and_arch", command_lines.keep_bf16_from_meaning_tpu),
    (options, "parse_args_and_arch", command_lines.show_help_of_arch_and_task),
    (options, "parse_args_and_arch", forgotten_task.explain_unknown_flags),
    # torchrun is one training; several processes on a CPU
    (distributed, "call_main", processes.make_torchrun_one_training),
    (distributed, "all_gather_list", processes.gather_objects_without_cuda),
    (distributed_fairseq_model, "DistributedDataParallel", processes.wrap_model_on_any_device),
    # --num-shards and torchrun divide the work of fairseq-generate
    (fairseq_generate, "main", generation_shards.divide_batches),
    (fairseq_generate, "_main", generation_shards.name_checkpoints),
    # an update whose gradient is not finite is named, or skipped
    (Trainer, "_check_grad_norms", nonfinite.skip_nonfinite_update),
    (stand_in(trainer, "torch"), "tensor", nonfinite.keep_zero_where_there_is_no_gpu),
    # what fairseq computes wrongly, or only on a GPU, or not beside one
    (utils, "clip_grad_norm_", computation.clip_where_the_gradients_are),
    (FP16Optimizer, "build_optimizer", computation.leave_fp16_unflattened_on_cpu),
    (EMA, "__init__", computation.copy_integer_buffers),
    # a forgotten --task is refused
    (tasks, "setup_task", forgotten_task.refuse_task_of_another_folder),
    (TranslationTask, "build_model", forgotten_task.refuse_padding_on_the_left),
    # checkpoints appear whole, with dictionary and tokenizer beside them
    (checkpoint_utils, "torch_persistent_save", saving.write_checkpoint_whole),
    (PathManager, "copy", saving.copy_checkpoint_whole),
    (checkpoint_utils, "load_checkpoint", saving.resume_from_newest_whole),
    (checkpoint_utils, "save_checkpoint", saving.gather_state_of_all_workers),
    (checkpoint_utils, "save_checkpoint", saving.copy_dictionary_and_tokenizer),
    # a resumed training goes on as if it had not been stopped
    (Trainer, "state_dict", half_precision.save_in_float32),
    (Trainer, "load_checkpoint", half_precision.load_in_float32),
    (Trainer, "state_dict", resuming.save_what_fairseq_forgets),
    (Trainer, "load_checkpoint", resuming.load_what_fairseq_forgets),
    # the best checkpoint
    (checkpoint_utils, "load_checkpoint", best_checkpoint.check_metric),
    (fairseq_train, "get_valid_stats", best_checkpoint.name_the_metrics),
    (fairseq_train, "validate", best_checkpoint.save_before_an_unknown_metric),
    # the same command continues
    (checkpoint_utils, "load_checkpoint", restart.use_options_once),
    # SIGTERM saves first; a finished training stays finished; one training in a save directory
    (checkpoint_utils, "load_checkpoint", interruption.lock_save_directory),
    (fairseq_train, "main", interruption.end_with_former_handlers),
    (fairseq_train, "train", interruption.leave_finished_training),
    (Trainer, "lr_step", interruption.end_below_least_rate),
    (fairseq_train, "validate_and_save", interruption.save_and_stop_when_asked),
    # the last line is the reason; hydra and processes of torch's spawn end without Python's hook
    (sys, "excepthook", command_lines.print_reason_last),
    (stand_in(hydra_utils, "sys"), "exit", command_lines.print_reason_before_exit),
    (stand_in(import_module("torch.multiprocessing.spawn"), "pickle"), "dump", command_lines.send_reason_last),
)

# whose function, its name, what takes its place, as TorchScript reads it
INSTEAD = (
    (sequence_generator.EnsembleModel, "set_decoder_beam_size", computation.set_decoder_beam_size),
    (NGramRepeatBlock, "_no_repeat_ngram", computation._no_repeat_ngram),
)


def apply() -> None:
    """Patch fairseq in this process, before a command parses its options; calling it again changes nothing."""
    for step in DONE_AT_ONCE:
        step()
    for owner, name, patch in AROUND:
        replace(owner, name, patch)
    for owner, name, function in INSTEAD:
        substitute(owner, name, function)
