"""server-graph: one model over a graph of servers, with masks and graph-homomorphic noise."""
