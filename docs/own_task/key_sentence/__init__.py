"""Which sentence of a document says what it is about."""

from fairseq_poolingformer.tasks.registry import Task, add

TASK = add(Task("key_sentence", __name__, corpora={"key_lines": "sentences and the key one"}, figures="accuracy"))
