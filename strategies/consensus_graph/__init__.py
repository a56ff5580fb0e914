"""consensus-graph: one graph a client and the sparse graph they share.

Start with `strategy` (`ConsensusGraph` and its update rule); `baselines` has learning alone and
averaging.
"""
