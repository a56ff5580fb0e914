"""Noisy secure sums of cluster-admm: what a device adds to them (`moments`), what it keeps (`own`).

The server's side, which sees the noisy sums only, is `trellis.strategies.cluster_admm.summed`.
"""
