"""gromov-wasserstein: one model for all clients, then distances between their graphs.

Start with `strategy` (`FederatedGnn`) and `embeddings` (what clients release). Distances: `space`
(a graph's measure), `pair` (one pair, on the network simplex of `simplex`; `rows` is its rival),
`pairwise` (all pairs, shared out by `pool`, resumable by `progress`), `barycentre`.
"""
