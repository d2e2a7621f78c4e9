"""Small made releases in the layouts and with the field names of the real ones."""

import gzip
import json
import zipfile
from collections.abc import Callable
from pathlib import Path


def _write(path: Path, *rows: object, indent: int | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, indent=indent) + "\n" for row in rows), encoding="utf-8")


def _section(title: str, *paragraphs: str, inner: tuple = ()) -> dict:
    return {"section_title": title, "paragraphs": list(paragraphs), "subsections": list(inner)}


def govreport(folder: Path) -> list[Path]:
    """``gov-report`` with ``crs``, ``gao`` and ``split_ids``; CRS reports are one section, GAO reports several."""
    root = folder / "gov-report"
    for number, split in enumerate(("train", "train", "valid", "test")):
        report = _section(
            "", "It begins.", inner=(_section("Part", f"Report {number}.", inner=(_section("Deep", "End."),)),)
        )
        rest = {"title": "Of pools", "released_date": "2020-01-01T00:00:00"}
        crs = {"id": f"R4{number}", **rest, "summary": ["It pools.", "It ends."], "reports": report}
        _write(root / "crs" / f"R4{number}.json", crs)
        highlight = [_section("Why", f"Because {number}."), _section("What", "GAO found it.", "Twice.")]
        gao = {"id": f"GAO-{number}", "url": "u", **rest, "published_date": "2020", "highlight": highlight}
        gao |= {"report": [_section("Letter", "Dear all."), _section("Body", "So.")], "fastfact": []}
        _write(root / "gao" / f"GAO-{number}.json", gao)
        for kind, name in (("crs", f"R4{number}"), ("gao", f"GAO-{number}")):
            ids = root / "split_ids" / f"{kind}_{split}.ids"
            ids.parent.mkdir(exist_ok=True)
            ids.write_text((ids.read_text() if ids.exists() else "") + f"{name}\n")
    _write(root / "crs" / "R99.json", {"id": "R99", "reports": _section("", "In no split."), "summary": ["None."]})
    return [root]


def qmsum(folder: Path) -> list[Path]:
    """``train.jsonl``, ``val.jsonl`` and ``test.jsonl`` of QMSum's ``data/ALL/jsonl``."""
    for split, count in (("train", 2), ("val", 1), ("test", 1)):
        meetings = [
            {
                "topic_list": [{"topic": "Pools", "relevant_text_span": [["0", "1"]]}],
                "general_query_list": [
                    {"query": "Discuss the whole meeting.", "answer": f"They met in {split} {number}."}
                ],
                "specific_query_list": [
                    {"query": "What did A say?", "answer": "A said théâtre.", "relevant_text_span": [["0", "0"]]}
                ],
                "meeting_transcripts": [
                    {"speaker": "Project Manager", "content": f"Théâtre {number} of {split} ."},
                    {"speaker": "A", "content": "{vocalsound} Yes ."},
                ],
            }
            for number in range(count)
        ]
        _write(folder / f"{split}.jsonl", *meetings)
    return [folder]


def booksum(folder: Path) -> list[Path]:
    """The chapters' table, whose column ``summary`` is JSON inside strings."""
    columns = "bid,is_aggregate,source,chapter_path,summary_path,book_id,summary_id,content,summary,chapter"
    for split in ("train", "validation", "test"):
        inner = json.dumps({"name": "I", "url": "u", "summary": f"Summary, of {split}.", "analysis": ""}).replace(
            '"', '""'
        )
        places = f"c.txt,finished_summaries/{split}/s.txt,B.I,chapter 1"
        row = f'1,False,shmoop,{places},,"{inner}","Chapter, ""I"" of {split}\nIt ran."'
        folder.mkdir(exist_ok=True)
        (folder / f"{split}.csv").write_text(f"{columns}\n{row}\n", encoding="utf-8")
    return [folder]


def summscreen(folder: Path) -> list[Path]:
    """``ForeverDreaming/fd_SPLIT.json`` of the tokenized release."""
    for split in ("train", "dev", "test"):
        row = {
            "filename": f"Show-{split}.json",
            "Transcript": ["[ Scene : a lab ]", "Ann : Hi ."],
            "Recap": ["Ann says hi ."],
        }
        _write(
            folder / "SummScreen" / "ForeverDreaming" / f"fd_{split}.json",
            row | {"Show Title": "S"},
            row | {"filename": f"2-{split}.json"},
        )
    return [folder / "SummScreen" / "ForeverDreaming"]


def multi_news(folder: Path) -> list[Path]:
    """Lines of sources and summaries."""
    folder.mkdir(exist_ok=True)
    for split in ("train", "val", "test"):
        (folder / f"{split}.src.cleaned").write_text(
            f"One {split}. NEWLINE_CHAR  Two. ||||| Other news.\nThird. \n", encoding="utf-8"
        )
        (folder / f"{split}.tgt").write_text("– Two stories say so.\n– Third.\n", encoding="utf-8")
    return [folder]


def bigpatent(folder: Path) -> list[Path]:
    """Folders of splits and of classes with lines in gzip files."""
    for split in ("train", "val", "test"):
        path = folder / "bigPatentData" / split / "a" / "data-0.gz"
        path.parent.mkdir(parents=True)
        row = {
            "publication_number": f"US-{split}",
            "abstract": "A pool.",
            "application_number": "1",
            "description": "It pools water.",
        }
        path.write_bytes(gzip.compress(json.dumps(row).encode() + b"\n"))
    return [folder / "bigPatentData" / split for split in ("train", "val", "test")]


def squality(folder: Path) -> list[Path]:
    """Stories with two questions and two answers to each."""
    for split in ("train", "dev", "test"):
        questions = [
            {
                "question_text": text,
                "question_number": number,
                "responses": [
                    {
                        "worker_id": str(worker),
                        "uid": f"{number}{worker}",
                        "response_text": f"Answer {worker} to {number}.",
                    }
                    for worker in (1, 2)
                ],
            }
            for number, text in enumerate(("What is the plot of the story?", "Who is Ann?"), 1)
        ]
        metadata = {"passage_id": f"5{len(split)}", "uid": split, "license": "free"}
        _write(
            folder / f"{split}.jsonl",
            {"metadata": metadata, "document": f"A story\n \n of {split}.", "questions": questions},
        )
    return [folder]


def multi_lexsum(folder: Path) -> list[Path]:
    """Cases that name documents; some have no short summary."""
    for split, count in (("train", 3), ("dev", 2), ("test", 2)):
        cases = [
            {
                "case_id": f"{split}-{number}",
                "case_documents": [f"{split}-{number}-1", "shared"],
                "summary/long": "A long summary.",
                "summary/short": "Short." if number else None,
                "summary/tiny": None if number == 1 else "Tiny.",
                "case_name": "A v. B",
            }
            for number in range(count)
        ]
        _write(folder / f"{split}.json", *cases)
    names = [f"{split}-{number}-1" for split in ("train", "dev", "test") for number in range(3)] + ["shared"]
    sources = {name: {"doc_id": name, "doc_title": "Order", "doc_text": f"Text of {name}."} for name in names}
    _write(folder / "sources.json", sources, indent=1)
    return [folder]


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
