"""Noise and what it hides: a file per mechanism; `noise` is where every draw comes from."""
