"""The shared model: `gnn` (GCN, GIN), or a user's own by dotted name (`own`).

What a client does with it is `training` (learn, count hits, embed); `update` makes of that its part
of a round.
"""
