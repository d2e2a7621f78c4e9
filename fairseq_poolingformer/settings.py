"""Settings of single layers, written as text: ``6-11``, or a value for each layer."""

from fairseq_poolingformer.attention.patterns import UNLIMITED


def layer_numbers(text: str | int) -> frozenset[int]:
    """Layer indices from ``"6-11"``, ``"0,2,4-6"``, ``"none"`` or ``""``.

    Raises:
        ValueError: the text is something else.
    """
    if str(text).strip() in ("", "none"):
        return frozenset()
    layers: set[int] = set()
    for part in str(text).split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)):
            raise ValueError(
                f"--pooled-layers must be none, or 0-based layer numbers and ranges such as 0,3,6-11; got {text!r}"
            )
        layers.update(range(int(first), int(last or first) + 1))
    return frozenset(layers)


def per_layer(flag: str, text: str | int, num_layers: int) -> tuple[int, ...]:
    """One number for each layer, from one number or a comma-separated list; ``all`` is a window without limits.

    Raises:
        ValueError: the text is something else, or the list has another length.
    """
    values = [value.strip() for value in str(text).split(",")]
    if not all(value.isdigit() or value == "all" for value in values):
        raise ValueError(f"{flag} must be a number, all, or one of these a layer separated by commas, got {text!r}")
    if len(values) not in (1, num_layers):
        raise ValueError(f"{flag} has {len(values)} values for {num_layers} layers; give one, or one a layer")
    numbers = tuple(UNLIMITED if value == "all" else int(value) for value in values)
    return numbers * num_layers if len(numbers) == 1 else numbers
