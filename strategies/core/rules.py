"""The rules of `robust` by name, for settings: importable without numpy."""

RULES = ("none", "clip", "median", "trimmed")
FEWEST = 3  # replies among which one can be told to lie
