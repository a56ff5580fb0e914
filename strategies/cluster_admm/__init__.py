"""cluster-admm: one model per cluster of clients, over a graph of servers.

Start with `strategy` (`ClusterAdmm`); what one server knows and does is in `server`, its rules in
`mixing`, and `divergence` watches it. `finding` and `search` find clusters, `local` is the baseline
without sharing. `moments` is the private regression from noisy sums, with `releases` and
`posterior`.
"""
