"""What distances between graphs are worth: classes, clusters, anomalies, each beside controls.

Start with `judge`, which a run calls; `tasks` does what is done with distances, by the classifiers
of `classify`; `controls` and `baselines` are what any result must beat.
"""
