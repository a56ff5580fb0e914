"""A tiny Flower app for the benchmark of engines."""
