"""Many variables: what never holds a p x p matrix.

Start with `stream`: correlations tile by tile, and the few of them that may be edges. `solve` is
the joint problem on what they connect, `bits` how concordances are counted where there are many.
"""
