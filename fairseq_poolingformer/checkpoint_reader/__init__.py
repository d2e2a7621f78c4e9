"""A reader of the files of ``torch.save`` that calls nothing: a file is read as data, whoever wrote it.

A pickle is a program that names functions and calls them. Here a name is only a name: :mod:`.machine` knows the
instructions that build values, and :mod:`.builders` makes each known kind of value itself, after checking its parts.

A child process with bounded memory would still need this reader, since what the child hands back has to be read too,
and it would copy every parameter once more. A reader that cannot call anything leaves nothing to contain.

======================  ================================================================================================
:mod:`.files`           the two containers: zip archives (torch 1.6 and later) and the format before
:mod:`.zip_archive`     the records of a zip archive, with their checksums
:mod:`.machine`         the instructions of a pickle
:mod:`.builders`        the values that have names: tensors, dictionaries, options, numbers of numpy, …
:mod:`.tensors`         storages, and tensors that lie within them
:mod:`.bounds`          how much a file may build, and how deep
======================  ================================================================================================
"""

from fairseq_poolingformer.checkpoint_reader.bounds import Malformed, Refused
from fairseq_poolingformer.checkpoint_reader.files import read

__all__ = ["Malformed", "Refused", "read"]
