"""Training tasks: a folder for each, with everything that only this task needs."""
