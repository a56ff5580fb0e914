"""What the server does: one Flower strategy a file, with its pure update rule beside it."""
