"""The paper's experiments on real data (Sec. V-C); the data sets are not part of the project.

`students`, `objects` and `brains` are its figures; `baselines` runs all methods and tunes them.
"""
