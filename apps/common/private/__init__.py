"""Noise in the sum, results at home: what devices of every study do for both.

`noisy_sum` is a device's part of a noisy secure sum; start reading there. `personal` is what it
makes of the public result and keeps, `files` how that is written. `notes` is what a run's reader is
told about the noise.
"""
