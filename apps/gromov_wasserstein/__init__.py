"""gromov-wasserstein: distances between graphs that never leave their owners."""
