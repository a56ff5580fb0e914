"""What draws and writes pages: the report of a run, its figures, its graphs as files.

Start with `report` (a run's page and the index of several), `page` (the blocks it is made of) and
`templates` (their markup, with the look of `style`); `privacy`, `rounds` and `repeat` are the
sections that every study has, `network` the one of servers that are apart, `wording` words and
numbers.
`plots`, `curves`, `connectome` and `server_map` draw, in the one look of `figure`; `graphs` writes
GraphML. A device imports nothing of this.
"""
