"""What the owner of a device gets from consensus-graph: `result` makes it, `predict` uses it."""
