"""Private and useful: one noisy sum for what clients share, raw data for what they keep.

Start with `pooled` (what a device adds to the sum, what the server makes of it), then `personal`
(what a device makes of the result at home), `score` (held-out signals) and `forecast` (what to
expect of an epsilon before anything is run). `device` answers the messages; the others are
mathematics, without Flower.
"""
