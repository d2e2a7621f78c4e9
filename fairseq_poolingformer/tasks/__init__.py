"""What models are trained for: a folder for each task, with everything that only this task needs."""
