"""joint-precision: jointly sparse precision matrices.

Start with `strategy`. Its pure rules: `splitting` (the iteration), `prox` (group and fused
penalties), `blocks` (screening), `anderson` (acceleration); `path` runs it over penalties, `alone`
has the methods without a joint problem, `messages` what travels.
"""
