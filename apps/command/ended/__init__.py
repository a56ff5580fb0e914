"""``trellis report`` and ``trellis graphs``: what is made of a run that has ended."""
