"""Graphs of brains, drawn where regions lie: `connectome` draws, `layout` says from which side."""
