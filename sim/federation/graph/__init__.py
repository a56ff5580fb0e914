"""A graph of servers as a folder: a federation for each, and the bridges between neighbours.

Start with `folder` (what is where). `create` makes it, with the words of `texts`; `rehearsal`
starts all of it on this machine and stops it.
"""
