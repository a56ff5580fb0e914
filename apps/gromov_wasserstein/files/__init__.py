"""Graphs in files: one npz per client (`npz`), TUDataset folders, Planetoid's one big graph."""
