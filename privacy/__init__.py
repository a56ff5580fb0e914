"""Mechanisms, accounting, secure aggregation, audits.

`mechanisms` make noise that nobody else can draw, `accounting` says what releases add up to and
refuses what goes beyond a device's budget, `device` is what its owner decides and what it says,
`secagg` gathers sums of which no summand is seen, `servers` is about what servers tell each other,
`audit` attacks claims. Flower is imported in
`secagg.client` and `secagg.answers` only.
"""
