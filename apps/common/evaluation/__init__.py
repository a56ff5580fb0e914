"""How good a result is on records that were kept out of learning.

`holding` says which records these are, `measures` what is measured on them, on the client; start
reading there. `scores` is what a run keeps of it: by client, in the mean, beside learning alone.
`model_file` says what was learned, so that it can be used, and scored, on new data later.
"""
