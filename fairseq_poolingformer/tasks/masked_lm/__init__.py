"""Masked language modeling on long documents."""

from dataclasses import replace

from fairseq_poolingformer.text.data_folder import Layout

DOCUMENTS = Layout(
    made_with="poolingformer preprocess wikipedia or plain_text, or by fairseq-preprocess --dataset-impl mmap",
    ids=("",),
)
DOCUMENTS_WITH_TEXT = replace(DOCUMENTS, texts=("id", "text"))
