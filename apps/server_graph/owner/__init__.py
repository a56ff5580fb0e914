"""What the owner of a device gets from server-graph.

`personal` learns the model of its own, `result` makes what is kept, `predict` uses it.
"""
