"""What draws and writes pages: the report of a run, its figures, its graphs as files.

Start with `report` (a run's page and the index of several), `page` (the blocks it is made of) and
`templates` (their markup, with the look of `style`); `held_out`, `privacy`, `rounds` and `repeat`
are the sections that every study has, `network` the one of servers that are apart, `wording` words
and numbers.
`plots`, `curves`, `brains` and `server_map` draw, in the one look of `figure`, nodes where `layout`
puts them; of many clients `clients` chooses a few. `graphs` writes GraphML, `named` is what a study
offers by name. A device imports nothing of this.
"""
