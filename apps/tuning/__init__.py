"""Choosing settings by data that no run has learned from: what ``trellis tune`` does.

Start with `tuner` (the one function, `tune`) and `plan` (what is asked, checked before anything
runs). `space` reads what a setting may be, `search` proposes settings, `runs` judges one of them on
one split, by `judging`, `trials` adds the splits up. `record` keeps what is done, `privacy` counts
what it would cost devices; `outcome` is what comes of it, `best`, `picture`, `page` and `terminal`
show it. Not in the Flower bundle.
"""
