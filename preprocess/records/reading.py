"""How the files that people have are read; one value for all formats."""

from dataclasses import asdict, dataclass, fields

from ..pipeline.records import MAX_LINE_BYTES


@dataclass(frozen=True)
class Reading:
    """What a file does not say by itself.

    Attributes:
        max_bytes: records of more bytes are rejected without being loaded.
        columns: names of the columns of a table without a header; empty where the first row has them.
        quotes: whether quotation marks around a field of a table belong to the table, not to the text.
        records_key: the key of the list of records where a file is one JSON object.
    """

    max_bytes: int = MAX_LINE_BYTES
    columns: tuple[str, ...] = ()
    quotes: bool = True
    records_key: str = "data"

    def settings(self) -> dict[str, object]:
        """The attributes that are not the defaults, as JSON values; without ``max_bytes``."""
        usual = {field.name: field.default for field in fields(self)}
        found = asdict(self).items()
        return {name: value for name, value in found if name != "max_bytes" and value != usual[name]}


USUAL = Reading()
