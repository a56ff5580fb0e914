"""Secure aggregation: the server learns a sum of the clients' vectors and no single one.

After Bonawitz et al. (CCS 2017) in the variant against active adversaries, with the neighbour graph
of Bell et al. (CCS 2020) and one key set-up for a whole run as in Flamingo (Ma et al., S&P 2023).
Three exchanges a round: masked vectors, consistency, unmasking; clients may vanish at any of them.
`protocol` is the client, `server` the server, neither knows a transport; `client` and
`answers` put the client into a Flower ClientApp, ``strategies.core.secure`` the server behind a
Flower Grid. `pairs`, `shamir`, `masks`, `ring` and `graph` are the parts.

Adversary: an active server, given signed keys, with fewer than a third of any client's holders; the
exact bounds stand in `protocol`. Revealed: the sum, who took part, names and shapes of the arrays.
Not covered: what the sum itself tells, wrong values sent by clients, an active server where keys
are not signed, denial of service, side channels.
"""
