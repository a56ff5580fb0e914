"""What a device's owner decides, and what the device keeps and says about it.

Start with `policy` (what is allowed) and `policy_file` (the TOML it is read from); `work` bounds
what a message may cost, `state` is the folder a device keeps its secret, ledger and log in, `log`
what happened there, `codes` all that a server ever hears of it. The ledger itself is
`trellis.privacy.accounting.budget`. Nothing here imports Flower or trusts a server.
"""
