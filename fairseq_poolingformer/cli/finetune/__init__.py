"""``poolingformer finetune``: from a model and data to a model that is evaluated, by the commands that there are."""
