"""The end of a run: `deliver` gives every client its result, `evaluation` reads how good it is."""
