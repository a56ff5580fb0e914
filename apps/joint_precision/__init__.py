"""joint-precision: one sparse precision matrix per client, jointly, from non-Gaussian data."""
