"""Patches with which fairseq works on current Python, torch and numpy, survives long jobs, and reads strangers' files.

A patch is a function that takes fairseq's function, then its arguments, and runs in its place; its docstring says why.
fairseq's own files are not changed; a replaced function keeps its original as ``__wrapped__``. The list below is the
only one. A patch's module is imported when fairseq first calls what it replaces.
"""

from fairseq_poolingformer.checkpoint_reader.errors import CheckpointError
from fairseq_poolingformer.patches.fixes.libraries import quiet_logging
from fairseq_poolingformer.patches.patching import find, replace_later

__all__ = ["CheckpointError", "apply", "quiet_logging"]

# done once, at once
DONE_AT_ONCE = (
    "fixes.libraries.require_safe_torch",
    "fixes.libraries.restore_names_of_numpy",
    "fixes.libraries.use_apex_only_with_its_kernels",
    "fixes.libraries.keep_freed_memory_without_a_gpu",
    "fixes.libraries.hide_warnings_about_fairseq",
    "fixes.libraries.let_masked_lm_find_its_bpe",
    "untrusted_files.literals.evaluate_literals_only",
)

# (fairseq's function, the patch); a later patch of the same function goes around an earlier one
REPLACED = (
    # --user-dir registers by itself
    ("fairseq.tasks:import_tasks", "fixes.command_options.import_no_file_of_this_plugin"),
    ("fairseq.models:import_models", "fixes.command_options.import_no_file_of_this_plugin"),
    # checkpoints are data, and one that cannot be used is a sentence
    ("fairseq.checkpoint_utils:torch.load", "untrusted_files.checkpoints.read_as_data"),
    ("fairseq.distributed.utils:torch.load", "untrusted_files.checkpoints.read_what_processes_sent"),
    ("fairseq.checkpoint_utils:load_model_ensemble_and_task", "untrusted_files.checkpoints.explain_unusable_model"),
    ("fairseq.trainer:Trainer.load_checkpoint", "long_jobs.changed_options.refuse_missing_or_unfit_checkpoint"),
    # dictionaries, datasets and archives are checked
    ("fairseq.data:Dictionary.add_from_file", "untrusted_files.data_files.check_dictionary"),
    ("fairseq.data.indexed_dataset:make_dataset", "untrusted_files.data_files.check_stored_dataset"),
    ("fairseq.file_utils:load_archive_file", "untrusted_files.hub_archives.unpack_within_folder"),
    # no batch is dropped, and processes that read data end
    ("fairseq.data.data_utils:batch_by_size", "fixes.batches.keep_the_last_batch"),
    ("fairseq.data.iterators:EpochBatchIterator.__init__", "fixes.batches.end_workers_with_their_epoch"),
    ("fairseq.data.iterators:CountingIterator.__next__", "fixes.batches.release_after_the_last_item"),
    # options of commands
    ("fairseq.options:parse_args_and_arch", "fixes.command_options.keep_bf16_from_meaning_tpu"),
    ("fairseq.options:parse_args_and_arch", "fixes.command_options.show_help_of_arch_and_task"),
    ("fairseq.options:parse_args_and_arch", "fixes.command_options.refuse_numbers_out_of_bounds"),
    # torchrun is one training; several processes on a CPU
    ("fairseq.distributed.utils:call_main", "distribution.processes.make_torchrun_one_training"),
    ("fairseq.distributed.utils:all_gather_list", "distribution.processes.gather_objects_without_cuda"),
    (
        "fairseq.models.distributed_fairseq_model:DistributedDataParallel",
        "distribution.processes.wrap_model_on_any_device",
    ),
    # --ddp-backend fully_sharded without fairscale
    ("fairseq_cli.train:fsdp_enable_wrap", "distribution.fully_sharded.have_no_block_for_wrapping"),
    ("fairseq_cli.train:fsdp_wrap", "distribution.fully_sharded.wrap_nothing"),
    ("fairseq.trainer:Trainer.__init__", "distribution.fully_sharded.shard_model_of_trainer"),
    ("fairseq.trainer:Trainer._build_optimizer", "distribution.fully_sharded.load_share_of_optimizer_state"),
    ("fairseq.trainer:Trainer.clip_grad_norm", "distribution.fully_sharded.clip_by_norm_of_all_shares"),
    ("fairseq.trainer:Trainer.state_dict", "distribution.fully_sharded.save_whole_tensors"),
    ("fairseq.trainer:Trainer.is_fsdp", "distribution.fully_sharded.never_take_fairscales_branches"),
    ("fairseq.trainer:Trainer.use_distributed_wrapper", "distribution.fully_sharded.wrap_no_sharded_model"),
    (
        "fairseq.trainer:Trainer.always_call_state_dict_during_save_checkpoint",
        "distribution.fully_sharded.gather_state_in_all_processes",
    ),
    # --context-parallel-size
    ("fairseq.trainer:Trainer.__init__", "distribution.contexts.divide_documents_of_trainer"),
    ("fairseq.trainer:Trainer.train_step", "distribution.contexts.raise_errors_of_memory"),
    ("fairseq.trainer:Trainer.valid_step", "distribution.contexts.raise_errors_of_memory"),
    ("fairseq_cli.validate:main", "distribution.contexts.refuse_to_divide"),
    ("fairseq_cli.interactive:main", "distribution.contexts.refuse_to_divide"),
    # --num-shards and torchrun divide the work of fairseq-generate
    ("fairseq_cli.generate:main", "distribution.generation_shards.divide_batches"),
    # --heartbeat-timeout ends processes that wait for one that hangs
    ("fairseq.distributed.utils:distributed_init", "long_jobs.heartbeat.watch_progress"),
    (
        "fairseq.models.distributed_fairseq_model:DistributedTimeoutWrapper",
        "long_jobs.heartbeat.watch_without_fairseq",
    ),
    ("fairseq.trainer:Trainer.train_step", "long_jobs.heartbeat.count_progress"),
    ("fairseq.trainer:Trainer.valid_step", "long_jobs.heartbeat.count_progress"),
    ("fairseq.trainer:Trainer.save_checkpoint", "long_jobs.heartbeat.count_progress"),
    # a gradient that is not finite is traced to layer and examples, or skipped
    ("fairseq.checkpoint_utils:load_model_ensemble_and_task", "long_jobs.nonfinite.refuse_nonfinite_models"),
    ("fairseq.trainer:Trainer.train_step", "long_jobs.nonfinite.name_examples_of_nonfinite_update"),
    ("fairseq.trainer:Trainer._check_grad_norms", "long_jobs.nonfinite.skip_nonfinite_update"),
    ("fairseq.trainer:Trainer.state_dict", "long_jobs.nonfinite.save_skipped_updates"),
    ("fairseq.trainer:Trainer.load_checkpoint", "long_jobs.nonfinite.load_skipped_updates"),
    ("fairseq.trainer:NanDetector", "long_jobs.nonfinite.find_first_nonfinite"),
    ("fairseq.trainer:torch.tensor", "long_jobs.nonfinite.keep_zero_where_there_is_no_gpu"),
    # what fairseq computes wrongly, or only on a GPU
    ("fairseq.optim:FP16Optimizer.build_optimizer", "fixes.computation.leave_fp16_unflattened_on_cpu"),
    ("fairseq.models.ema:EMA.__init__", "fixes.computation.copy_integer_buffers"),
    (
        "fairseq.sequence_generator:EnsembleModel.set_decoder_beam_size",
        "fixes.computation.tell_decoders_of_a_single_beam",
    ),
    ("fairseq.ngram_repeat_block:NGramRepeatBlock._no_repeat_ngram", "fixes.computation.block_repeated_ngrams"),
    # a forgotten --task is refused
    ("fairseq.tasks:setup_task", "fixes.forgotten_task.refuse_task_of_another_folder"),
    ("fairseq.tasks.translation:TranslationTask.build_model", "fixes.forgotten_task.refuse_padding_on_the_left"),
    ("fairseq.checkpoint_utils:load_model_ensemble_and_task", "fixes.forgotten_task.refuse_checkpoint_of_another_task"),
    # checkpoints appear whole, with dictionary and tokenizer beside them
    ("fairseq.checkpoint_utils:torch_persistent_save", "long_jobs.saving.write_checkpoint_whole"),
    ("fairseq.file_io:PathManager.copy", "long_jobs.saving.copy_checkpoint_whole"),
    ("fairseq.checkpoint_utils:load_checkpoint", "long_jobs.saving.resume_from_newest_whole"),
    ("fairseq.checkpoint_utils:save_checkpoint", "long_jobs.saving.gather_state_of_all_workers"),
    ("fairseq.checkpoint_utils:save_checkpoint", "long_jobs.companions.copy_dictionary_and_tokenizer"),
    # a resumed training goes on as if it had not been stopped
    ("fairseq.data.iterators:EpochBatchIterator.state_dict", "long_jobs.resuming.save_number_of_processes"),
    (
        "fairseq.data.iterators:EpochBatchIterator.load_state_dict",
        "long_jobs.resuming.continue_where_all_processes_were",
    ),
    ("fairseq.trainer:Trainer.state_dict", "long_jobs.resuming.save_float32"),
    ("fairseq.trainer:Trainer.load_checkpoint", "long_jobs.resuming.load_float32"),
    *(
        (f"fairseq.optim:{optimizer}.{method}", f"long_jobs.resuming.{patch}")
        for optimizer in ("FP16Optimizer", "MemoryEfficientFP16Optimizer", "AMPOptimizer")
        for method, patch in (("state_dict", "save_loss_scale_counts"), ("load_state_dict", "load_loss_scale_counts"))
    ),
    *(
        (f"fairseq.optim.lr_scheduler.reduce_lr_on_plateau:ReduceLROnPlateauLRSchedule.{method}", patch)
        for method, patch in (
            ("state_dict", "long_jobs.resuming.save_plateau_counts"),
            ("load_state_dict", "long_jobs.resuming.load_plateau_counts"),
        )
    ),
    ("fairseq.trainer:Trainer.state_dict", "long_jobs.resuming.save_patience"),
    ("fairseq.trainer:Trainer.load_checkpoint", "long_jobs.resuming.load_validation_losses"),
    ("fairseq_cli.train:train", "long_jobs.resuming.leave_training_out_of_patience"),
    # SIGTERM saves first; a finished training stays finished; one training in a save directory
    ("fairseq.checkpoint_utils:verify_checkpoint_directory", "long_jobs.interruption.lock_save_directory"),
    ("fairseq_cli.train:train", "long_jobs.interruption.leave_finished_training"),
    ("fairseq_cli.train:validate_and_save", "long_jobs.interruption.save_and_stop_when_asked"),
    # a mistake in a command ends with a sentence
    ("sys:excepthook", "fixes.mistakes.print_one_sentence"),
    ("fairseq.checkpoint_utils:load_model_ensemble_and_task", "fixes.mistakes.refuse_path_without_checkpoint"),
    ("fairseq.trainer:Trainer.get_valid_iterator", "fixes.mistakes.refuse_split_that_counts_nothing"),
    ("fairseq_cli.train:get_valid_stats", "fixes.mistakes.name_logged_metrics"),
)


def apply() -> None:
    """Patch fairseq in this process; calling it again changes nothing.

    :func:`fairseq_poolingformer.register` calls it. ``--user-dir`` does that before a fairseq command parses its
    options, starts its processes or opens a checkpoint.

    Raises:
        ImportError: torch is too old to load checkpoints safely.
    """
    for step in DONE_AT_ONCE:
        find(step)()
    for place, patch in REPLACED:
        replace_later(place, patch)
