"""cluster-admm: one model a cluster of clients, over a graph of servers.

Start with `strategy`; what one server knows and does is in `server`, its rules in `mixing`, and
`divergence` watches it. `search`, `finding` and `selection` find clusters and choose their number,
`local` is learning alone.
"""
