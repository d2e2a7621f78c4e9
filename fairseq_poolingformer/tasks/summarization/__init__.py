"""ROUGE for summaries: the scores, and the reader of fairseq-generate's output. Nothing here imports fairseq."""

from fairseq_poolingformer.text.data_folder import Layout


def pair_array(side: str, source: str = "source", target: str = "target") -> str:
    """fairseq's name of one side of a corpus of pairs, such as ``source-target.source``."""
    return f"{source}-{target}.{side}"


QUERY = "query"  # an array of folders whose documents begin with questions: how many tokens these have
PAIRS = Layout(
    made_with="poolingformer preprocess arxiv_pubmed, or by fairseq-preprocess --dataset-impl mmap",
    ids=(pair_array("source"), pair_array("target")),
    texts=("id", "summary"),
    dictionaries=("dict.source.txt", "dict.target.txt"),
    outputs=(pair_array("target"),),
)
