"""Text that has no UTF-8: halves of characters, as JSON may hold them."""


def replace_lone_surrogates(text: str) -> str:
    r"""Replace lone surrogates (``"\ud800"`` in JSON), which have no UTF-8, by U+FFFD; join halves of characters."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
