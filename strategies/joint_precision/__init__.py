"""joint-precision: jointly sparse precision matrices.

Start with `strategy`, the rounds of the joint methods. Its pure rules: `splitting` (the iteration),
`prox` (group and fused penalties), `blocks` and `screening` (which variables can be connected);
`path` runs it over penalties, `messages` reads and writes what is sent. `baselines` has the methods
of one round, `private` the sum of concordances.
"""
