"""Private and useful: one noisy sum for what clients share, raw data for what they keep.

Start with `pooled` (what a device adds to the sum, what the server makes of it), then `personal`
(what a device makes of the result at home) and `score` (held-out signals). No Flower in here.
"""
