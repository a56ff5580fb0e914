"""What the paper proves or takes for granted, checked in numbers.

`bounds` has Proposition 1, `theorems` Theorems 1 and 2, `leaks` Theorem 3 and what graphs tell,
`constants` the constants that the paper names.
"""
