"""Says which corpora there are."""

import sys

_TEXT = """\
usage: python -m preprocess.CORPUS [options]

Makes a data folder that fairseq trains on. Corpora:

  arxiv_pubmed       arXiv, PubMed and any other summarization corpus in JSON lines
  wikipedia          a dump of Wikipedia, or of another wiki, in any language, for language models
  plain_text         text files, a document each or a document each block of lines, for language models
  char_lm            enwik8, text8 or any other text, bytes as symbols, for character language models
  stdlib             the Python installation itself: sources and their docstrings, no download
  natural_questions  questions about Wikipedia pages: Natural Questions, both formats
  tydiqa             questions about Wikipedia pages in eleven languages: TyDi QA, primary tasks

python -m preprocess.CORPUS --help tells the options of each."""

print(_TEXT)
sys.exit(0 if sys.argv[1:] in ([], ["-h"], ["--help"]) else 2)
