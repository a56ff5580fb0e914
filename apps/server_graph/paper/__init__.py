"""The paper's claims, by one command each: ``trellis paper server-graph [FIGURE ...]``.

A figure is a TOML of this folder. `setting` has the paper's setting and what figures share;
`synthetic` its Fig. 2, `theorem1`, `lemma1`, `theorem2`, `cancellation` and `local_steps` what it
says in words, `second_order` what theory says instead; `methods`, `private` and `speed` are ours.
"""
