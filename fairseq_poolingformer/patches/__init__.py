"""Patches with which fairseq works on current Python, torch and numpy.

Each module holds one kind of patch. A patch is a function that takes fairseq's function and returns the one to use in
its place; it says why that is needed, and the module's ``apply`` says where it goes. fairseq's own files are not
changed; a replaced function keeps its original as ``__wrapped__``.

============================================  ==========================================================================
:mod:`.fixes.numpy_names`                     names that numpy has removed
:mod:`.fixes.batches`                         no batch is dropped; ``--mask-whole-words`` finds its word boundaries
:mod:`.fixes.command_options`                 ``--bf16`` no longer means TPU; ``--help`` shows the flags of ``--arch``
                                              and ``--task``
:mod:`.fixes.half_precision`                  ``--fp16`` on a CPU
:mod:`.fixes.averages`                        ``--store-ema`` of a model with integer buffers
:mod:`.fixes.generation`                      ``--no-repeat-ngram-size`` without fairseq's CUDA extension
:mod:`.fixes.forgotten_task`                  a forgotten ``--task`` is refused
:mod:`.fixes.apex`                            apex without its CUDA kernels is not used
:mod:`.fixes.freed_memory`                    freed memory is kept on a machine without a GPU
:mod:`.fixes.logs`                            no warning of pinned memory without a GPU; ``quiet_logging`` for scripts
:mod:`.fixes.mistakes`                        a mistake in a command ends with a sentence
:mod:`.untrusted_files.checkpoints`           checkpoints are read as data; a missing ``--restore-file`` is an error
:mod:`.untrusted_files.configuration`         no string of a checkpoint's configuration is evaluated as Python
:mod:`.untrusted_files.dictionaries`          a damaged ``dict.txt`` is a sentence
:mod:`.untrusted_files.hub_archives`          archives of models are unpacked without leaving their folder
:mod:`.distribution.processes`                ``torchrun`` is one training; several processes on a CPU
:mod:`.distribution.fully_sharded`            ``--ddp-backend fully_sharded`` without fairscale
:mod:`.distribution.generation_shards`        ``--num-shards`` and ``torchrun`` divide the work of fairseq-generate
:mod:`.long_jobs.saving`                      checkpoints appear whole; the newest whole one replaces a damaged last one
:mod:`.long_jobs.companions`                  dictionary and tokenizer lie beside checkpoints
:mod:`.long_jobs.validation_history`          ``--patience`` and ``reduce_lr_on_plateau`` know the losses from before a
                                              resume
:mod:`.long_jobs.interruption`                SIGTERM saves first; a finished training stays finished; one training in a
                                              save directory
:mod:`.long_jobs.heartbeat`                   ``--heartbeat-timeout`` ends processes that wait for one that hangs
:mod:`.long_jobs.epoch_position`              another number of processes continues an epoch at the same batch
:mod:`.long_jobs.nonfinite`                   a gradient that is not finite is traced to layer and examples, or skipped
============================================  ==========================================================================
"""

from fairseq_poolingformer.checkpoint_reader.checkpoints import CheckpointError
from fairseq_poolingformer.patches.distribution import fully_sharded, generation_shards, processes
from fairseq_poolingformer.patches.fixes import (
    apex,
    averages,
    batches,
    command_options,
    forgotten_task,
    freed_memory,
    generation,
    half_precision,
    logs,
    mistakes,
    numpy_names,
)
from fairseq_poolingformer.patches.fixes.logs import quiet_logging
from fairseq_poolingformer.patches.long_jobs import (
    companions,
    epoch_position,
    heartbeat,
    interruption,
    nonfinite,
    saving,
    validation_history,
)
from fairseq_poolingformer.patches.untrusted_files import checkpoints, configuration, dictionaries, hub_archives

__all__ = ["CheckpointError", "apply", "quiet_logging"]

# a later patch of the same function wraps an earlier one
_PATCHES = (
    *(checkpoints, configuration, numpy_names, batches, dictionaries, command_options, processes, fully_sharded),
    *(heartbeat, epoch_position, nonfinite, half_precision, averages, generation, forgotten_task, saving, companions),
    *(validation_history, interruption, hub_archives, generation_shards, apex, freed_memory, logs, mistakes),
)


def apply() -> None:
    """Patch fairseq in this process; calling it again changes nothing.

    :func:`fairseq_poolingformer.register` calls it. ``--user-dir`` does that before a fairseq command parses its
    options, starts its processes or opens a checkpoint.

    Raises:
        ImportError: torch is too old to load checkpoints safely.
    """
    for patch in _PATCHES:
        patch.apply()
