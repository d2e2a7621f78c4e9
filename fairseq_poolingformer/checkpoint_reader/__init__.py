"""A reader of the files of ``torch.save`` that calls nothing: a file is read as data, whoever wrote it.

A pickle is a program that names functions and calls them. Here a name is only a name: :mod:`.machine` knows the
instructions that build values, and :mod:`.builders` makes each known kind of value itself, after checking its parts.

A child process with bounded memory would still need this reader, since what the child hands back has to be read too,
and it would copy every parameter once more. A reader that cannot call anything leaves nothing to contain.

======================  ================================================================================================
:mod:`.checkpoints`     ``read`` and ``load``: a file, or one sentence for each way in which it cannot be read
:mod:`.files`           the two containers: zip archives (torch 1.6 and later) and the format before
:mod:`.zip_archive`     the records of a zip archive, with their checksums
:mod:`.machine`         the instructions of a pickle
:mod:`.builders`        the values that have names: tensors, dictionaries, options, numbers of numpy, …
:mod:`.tensors`         storages, and tensors that lie within them
:mod:`.bounds`          how much a file may build while it is read
:mod:`.whole`           data only, and how much of it, in the whole of what was read
:mod:`.option_schema`   the values that a checkpoint's configuration may give to an option
:mod:`.tensor_sizes`    these values against the checkpoint's own tensors
:mod:`.errors`          the errors of all of these
======================  ================================================================================================
"""
