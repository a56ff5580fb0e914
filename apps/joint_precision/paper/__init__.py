"""The paper's experiments, by one command each: ``trellis paper joint-precision [FIGURE ...]``.

Every figure, table and claim has a TOML of its own here, with its sizes and what the paper says.
Areas are in `areas` and `synthetic`, drawings of graphs in `pictures`, time and bytes in `timing`,
`cost` and `energy`, equations and Algorithm 1 as printed in `printed`, `theory` and `rho`, brain
scans in `real_data` and `sites`, noise in sums in `private`; ``abide`` is fig9 under the name of
its data.
"""
