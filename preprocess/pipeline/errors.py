"""The error that preprocessing explains to people."""

from fairseq_poolingformer.extras import how_to_install


class InputError(ValueError):
    """An error for people: what is wrong, where, what to do. Command lines print it without a traceback."""


def needs(path: object, kind: str, package: str, otherwise: str) -> InputError:
    """The error for a file that only a package which is not installed can read."""
    return InputError(f"{path}: is {kind}, which needs the package {package}: {how_to_install('data')}; or {otherwise}")
