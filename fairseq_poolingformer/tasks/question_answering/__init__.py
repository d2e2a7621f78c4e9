"""Question answering without fairseq: segments, labels, answers from logits, official formats and scores."""
