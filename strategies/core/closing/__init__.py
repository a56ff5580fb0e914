"""The end of a run: `deliver` gives every client its result, `evaluation` reads how good it is.

`scores` is the table that clients tell, and the mean over them.
"""
