"""What makes a study fit a person's own data, in any units and of any size.

`scaling` has the settings and the mathematics of standardised features, `units` how clients find a
common scale, `sent` and `standardising` a client's and a server's part of it, `choosing` servers
and clusters for the clients there are.
"""
