import argparse
from pathlib import Path

from fairseq_poolingformer.options import add_gold


def test_patterns_are_files_and_others_stay_for_the_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a/2.gz", "a/1.gz", "[1].gz", "a/b/c.gz", "d[e]/1*/2.gz", "d[e]/1*/1.gz", "de/1*/3.gz"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    parser = argparse.ArgumentParser()
    add_gold(parser, "gold", shards=True)
    args = parser.parse_args(["a/*.gz", "none*", "[1].gz", "--gold", "a/**/*.gz", "d[e]/1*/[12].gz", "[a]/b/c.*"])
    assert args.file == ["a/1.gz", "a/2.gz", "none*", "[1].gz"]
    assert args.gold == ["a/1.gz", "a/2.gz", "a/b/c.gz", "d[e]/1*/1.gz", "d[e]/1*/2.gz", "a/b/c.gz"]
    absolute = str(tmp_path / "d[e]" / "1*" / "*.gz")
    assert parser.parse_args(["--gold", absolute]).gold == [absolute.replace("*.gz", f"{n}.gz") for n in (1, 2)]
    assert parser.parse_args(["--gold", "x"]).file == []
