"""Patches with which fairseq works on current Python, torch and numpy.

Each module holds one kind of patch. A patch is a function that takes fairseq's function and returns the one to use in
its place; it says why that is needed, and the module's ``apply`` says where it goes. fairseq's own files are not
changed; a replaced function keeps its original as ``__wrapped__``.

=====================  =================================================================================================
:mod:`.checkpoints`    checkpoints are read as data; a missing ``--restore-file`` is an error; what tasks save of each
                       worker
:mod:`.companions`     dictionary and tokenizer lie beside checkpoints
:mod:`.configuration`  no string of a checkpoint's configuration is evaluated as Python
:mod:`.data`           no batch is dropped; ``--mask-whole-words`` finds its word boundaries
:mod:`.dictionaries`   a damaged ``dict.txt`` is a sentence
:mod:`.numpy_shims`    names that numpy has removed
:mod:`.options`        ``--bf16`` no longer means TPU; ``--help`` shows the flags of ``--arch`` and ``--task``
:mod:`.distributed`    ``torchrun`` is one training; several processes on a CPU
:mod:`.fully_sharded`  ``--ddp-backend fully_sharded`` without fairscale
:mod:`.heartbeat`      ``--heartbeat-timeout`` ends processes that wait for one that hangs
:mod:`.epoch_position` an epoch is continued at the same batch by another number of processes
:mod:`.nonfinite`      a gradient that is not finite is traced to layer and examples, or skipped
:mod:`.precision`      ``--fp16`` on a CPU
:mod:`.averages`       ``--store-ema`` of a model with integer buffers
:mod:`.generation`     ``--no-repeat-ngram-size`` without fairseq's CUDA extension
:mod:`.mistakes`       a mistake in a command ends with a sentence
:mod:`.right_task`     a forgotten ``--task`` is refused
:mod:`.saving`         checkpoints appear whole; a damaged last one is replaced by the newest whole one
:mod:`.validation_history` ``--patience`` and ``reduce_lr_on_plateau`` know the losses from before a resume
:mod:`.interruption`   SIGTERM saves first; a finished training stays finished; one training in a save directory
:mod:`.hub_archives`   archives of models are unpacked without leaving their folder
:mod:`.sharding`       ``--num-shards`` and ``torchrun`` divide the work of fairseq-generate
:mod:`.apex`           apex without its CUDA kernels is not used
:mod:`.allocator`      freed memory is kept on a machine without a GPU
:mod:`.logs`           no warning about pinned memory without a GPU; ``quiet_logging`` for scripts
=====================  =================================================================================================
"""

from fairseq_poolingformer.compat import (
    allocator,
    apex,
    averages,
    checkpoints,
    companions,
    configuration,
    data,
    dictionaries,
    distributed,
    epoch_position,
    fully_sharded,
    generation,
    heartbeat,
    hub_archives,
    interruption,
    logs,
    mistakes,
    nonfinite,
    numpy_shims,
    options,
    precision,
    right_task,
    saving,
    sharding,
    validation_history,
)
from fairseq_poolingformer.compat.checkpoints import CheckpointError
from fairseq_poolingformer.compat.logs import quiet_logging

__all__ = ["CheckpointError", "apply", "quiet_logging"]


def apply() -> None:
    """Patch fairseq in this process; calling it again changes nothing.

    :func:`fairseq_poolingformer.register` calls it. ``--user-dir`` does that before a fairseq command parses its
    options, starts its processes or opens a checkpoint.

    Raises:
        ImportError: torch is too old to load checkpoints safely.
    """
    checkpoints.apply()
    configuration.apply()
    numpy_shims.apply()
    data.apply()
    dictionaries.apply()
    options.apply()
    distributed.apply()
    fully_sharded.apply()
    heartbeat.apply()
    epoch_position.apply()
    nonfinite.apply()
    precision.apply()
    averages.apply()
    generation.apply()
    right_task.apply()
    saving.apply()
    companions.apply()
    validation_history.apply()
    interruption.apply()
    hub_archives.apply()
    sharding.apply()
    apex.apply()
    allocator.apply()
    logs.apply()
    mistakes.apply()
