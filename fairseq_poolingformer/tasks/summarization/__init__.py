"""ROUGE for summaries: the scores, and the reader of fairseq-generate's output. Nothing here imports fairseq."""
