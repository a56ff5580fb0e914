"""cluster-admm: one model a cluster of clients, over a graph of servers.

Start with `strategy`, whose rules are in `mixing`; `divergence` watches it. `search`, `finding` and
`selection` find clusters and choose their number, `local` is learning alone.
"""
