"""What the owner of a device gets from cluster-admm: `result` makes it, `predict` uses it."""
