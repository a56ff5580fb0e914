"""server-graph: one model over a graph of servers.

Start with `strategy`. `exchange` is what a server tells its neighbours, `post` the only way between
servers, `failures` who is down when.
"""
