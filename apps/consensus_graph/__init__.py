"""consensus-graph: every client's graph from smooth signals, and the sparse graph they share."""
