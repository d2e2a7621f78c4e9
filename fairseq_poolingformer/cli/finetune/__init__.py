"""``poolingformer finetune``: from a model and data to a model that is evaluated, by transformers' Trainer."""
