"""What the studies' ``paper/`` folders share: figures by name, many runs side by side, data sets.

Start with `figures`, which finds a figure by its name; `sweep` runs many jobs on all cores and
writes tables; `datasets` says where real data lie. Nothing of this is in the Flower bundle.
"""
