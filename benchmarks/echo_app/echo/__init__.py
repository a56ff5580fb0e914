"""A client that keeps a running mean of what it is sent: next to no work, so the engine shows."""
