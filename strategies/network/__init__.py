"""What carries letters between servers, in one process or between SuperLinks.

Start with `mailbox`: letters by sender and receiver go in, by receiver and sender they come out.
The servers' graph says who may write to whom. `bridges` is the mailbox of a server with a SuperLink
of its own, of which `member` tells its strategy; `greeting` is how it begins, `links` which
neighbours count and with which weights, `quiet` when to stop, `seen` what is told of it afterwards.
`spool`, `board`, `letters` and `asking` are the parts.
"""
