"""Small made archives of SCROLLS and ZeroSCROLLS, with the layout and the field names of the real ones."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path


def suite(task: str, output: str, zero: bool = False) -> Callable[[Path], list[Path]]:
    """An archive with a folder: JSON lines; of an input with two outputs there are two, with one id."""

    def write(folder: Path) -> list[Path]:
        archive = folder / f"{task}.zip"
        folder.mkdir(exist_ok=True)
        with zipfile.ZipFile(archive, "w") as file:
            for split in ("validation", "test") if zero else ("train", "validation", "test"):
                rows = [
                    {
                        "id": f"{split}{one}",
                        "pid": f"{split}{one}_{number}",
                        "input": f"What is {one}?\n\nIt is {output}.",
                        "output": output,
                    }
                    for one, number in ((0, 0), (0, 1), (1, 0))
                ]
                if split == "test":
                    rows = [row | {"output": None} for row in (rows[0], rows[2])]
                if zero:
                    places = {
                        "document_start_index": 12,
                        "document_end_index": 20,
                        "query_start_index": 0,
                        "query_end_index": 10,
                    }
                    rows = [row | places | {"truncation_seperator": "... [The rest is omitted]"} for row in rows]
                file.writestr(f"{task}/{split}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
            file.writestr(f"__MACOSX/{task}/._test.jsonl", b"\0")
        return [archive]

    return write


OUTPUTS = {
    "quality": "(B) two",
    "contract_nli": "Entailment",
    "space_digest": "40%",
    "book_sum_sort": "2, 1, 3",
}
