"""server-graph: one model over a graph of servers.

Start with `strategy`. `exchange` is what a server tells its neighbours, `noise` where the noise in
it comes from, `post` the only way between servers, `failures` who is down when.
"""
