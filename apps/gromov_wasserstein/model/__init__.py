"""The shared model: `gnn` (GCN, GIN), a user's own by dotted name (`own`), local `training`."""
