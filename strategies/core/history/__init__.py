"""What a run remembers of its rounds, however many: `rows` in memory, `file` on disk."""
