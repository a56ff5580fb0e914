"""cluster-admm: one model per cluster of clients, over a graph of servers, by ADMM."""
