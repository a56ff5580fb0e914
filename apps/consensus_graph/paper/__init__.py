"""The paper's experiments, by one command each: ``trellis paper consensus-graph [FIGURE ...]``.

A figure is a TOML file here and the function that it names. On synthetic graphs: `sizes`,
`overlaps`, `weights`, `sensitivity`, `noise`; on real data: `real_data`; what the paper proves:
`theory`; ours: `private`, `tuning`. They share `algorithm` (Algorithm 1 without messages),
`points` (settings and scores) and `judging` (verdicts).
"""
