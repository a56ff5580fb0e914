"""Benchmarks: what is made of measurements. Nothing here is timed."""
