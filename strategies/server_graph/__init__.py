"""server-graph: one model over a graph of servers.

Start with `strategy`; `sums` takes sums of gradients in place of clients' models. `exchange` is
what a server sends its neighbours, `noise` where the noise in it comes from, `post` the only way
between servers (`lone` between SuperLinks), `failures` who is down when.
"""
