"""The special tokens that all tasks over documents have."""

# Marks of places: question, candidate of WikiHop, title and sentence of HotpotQA (Longformer, §6 and appendix D). No
# data folder holds them: a task appends them to its dictionary, after <mask>. All tasks have these, so that the
# checkpoint of one fits the next; a task may have more.
MARKS = ("[q]", "[/q]", "[ent]", "[/ent]", "<t>", "</t>", "[s]")
