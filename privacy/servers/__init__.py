"""What passes between servers of a graph: who may read it, and who can have written it.

Start with `masks`, the zero-sum masks of servers that send to one server. `identity` is by what
servers of different owners know each other: signed greetings with the keys of a run. `envelope`
seals a letter from one server to another, whoever carries it.
"""
