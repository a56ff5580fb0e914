"""Noise in the sum, results at home: joint-precision with ``release = sum``.

`concordance` is what a client puts into the one sum, `consensus` what the server makes of it, `own`
what a device makes of its raw data and the consensus, `score` the held-out score, `forecast` what
to expect before a run. All of it is functions on arrays.
"""
