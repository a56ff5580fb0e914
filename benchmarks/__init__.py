"""Side by side with peers: `python -m benchmarks` measures both in one run."""
