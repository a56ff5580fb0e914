"""What is done with runs that have ended: servers' parts of one gathered, several side by side.

Start with `merge`, which makes one result of the folders that the servers of a graph left, with
`arrays` and `fold` for its parts; `compare` puts any runs into one small table, `page` onto one
page; `using` uses what a run has learned on new data; `graphs` writes any client's graph.
"""
