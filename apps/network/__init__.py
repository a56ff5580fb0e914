"""One server of a graph of SuperLinks: what its run config says, and the ClientApp of its bridges.

Start with `place`; `strategies.network` has what such a server does. `bridge` is the ClientApp of a
SuperNode that brings one server's letters to another.
"""
