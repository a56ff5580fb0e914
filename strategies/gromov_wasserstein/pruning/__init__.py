"""Not all pairs: what is nearest, central or far off, from few exact distances.

Start with `bounds`, which says of every pair how far apart it is at least; `partial` holds what is
known of the matrix of distances and solves more of it; `neighbours` and `medoids` ask it for no
more pairs than their answers need.
"""
