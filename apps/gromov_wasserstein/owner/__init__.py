"""What the owner of a device gets from gromov-wasserstein: `result` makes it, `predict` uses it."""
