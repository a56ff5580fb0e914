"""What carries letters between servers.

Start with `mailbox`: letters by sender and receiver go in, by receiver and sender they come out.
The servers' graph says who may write to whom.
"""
