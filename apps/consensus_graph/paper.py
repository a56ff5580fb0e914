"""Placeholder until the figures are in."""

FIGURES = {}
