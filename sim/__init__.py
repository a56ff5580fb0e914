"""Running and recording studies: the in-process grid, seeds, metrics, results, plots, reports."""
