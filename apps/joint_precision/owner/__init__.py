"""What the owner of a device gets from joint-precision: `result` makes it, `predict` uses it.

`margins` leads from the owner's variables to those of the Gaussian behind them, and back.
"""
