"""The error that preprocessing explains to people."""


class InputError(ValueError):
    """An error for people: what is wrong, where, what to do. Command lines print it without a traceback."""


EXTRA = "pip install 'fairseq-poolingformer[data]'"


def needs(path: object, kind: str, package: str, otherwise: str) -> InputError:
    """The error for a file that only a package which is not installed can read."""
    return InputError(f"{path}: is {kind}, which needs the package {package}: {EXTRA}; or {otherwise}")
