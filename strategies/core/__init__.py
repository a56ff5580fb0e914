"""The machinery that every strategy stands on.

Start with `base`: enrolment, rounds, sampling, stopping, resuming. `sums` is for rules that are
sums over clients, and gets secure aggregation by `secure`. `exchange` sends and gathers, `wire` is
what messages look like, `checkpoint` what is kept on disk, `closing` how a run ends. `jobs` shares
out work that needs no client: to the cores of this machine, or to a cluster.
"""
