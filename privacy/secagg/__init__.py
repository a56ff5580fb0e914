"""Secure aggregation: the server learns a sum of the clients' vectors and no single one.

After Bonawitz et al. (CCS 2017), with the neighbour graph of Bell et al. (CCS 2020) for many
clients. Four stages a round: keys, shares, masked vectors, unmasking; clients may vanish after any
of them. `protocol` is the client, `server` the server, neither knows a transport; `client` puts the
client into a Flower ClientApp, ``strategies.core.secure`` the server behind a Flower Grid.

Adversary: an honest-but-curious server with fewer than t of any client's holders; an active one
too within the bounds of `protocol`, given signed keys. Revealed: the sum, who took part, names and
shapes of the arrays. Not covered: what the sum itself tells, wrong values sent by clients, an
active server where keys are not signed, denial of service, side channels.
"""
