"""Section retrieval: which section of a long document a cross-reference in it names."""
