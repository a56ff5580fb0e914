"""What releases add up to, and who may make them.

Start with `events` (one release) and `totals` (what several add up to, by the rules of `zcdp` and
`composition`). `budget` is the device's policy and its ledger on disk, `ledger` the server's.
"""
