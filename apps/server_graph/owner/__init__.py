"""What the owner of a device gets from server-graph: `result` makes it, `predict` uses it."""
