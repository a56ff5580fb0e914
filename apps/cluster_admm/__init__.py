"""cluster-admm: one model a cluster of clients, over a graph of servers, by ADMM."""
