"""consensus-graph: every client's graph from its smooth signals, and the sparse graph they share."""
