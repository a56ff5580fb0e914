"""Graphs of servers.

Start with `graph`: the `Topology` that a name or a file gives. `named` makes graphs by name,
`files` reads them, `weights` makes combination matrices by one of `rules`, `clients` draws each
server's clients.
"""
