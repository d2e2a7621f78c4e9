"""Question answering without fairseq: segments of documents, their labels, answers from logits, official formats."""
