"""joint-precision: one sparse precision matrix a client, jointly, from non-Gaussian data."""
