"""Noise in the sum, results at home: what devices of every study do for both.

`noisy_sum` is a device's part of a noisy secure sum; start reading there. `notes` is what a run's
reader is told about the noise.

`personal` is what a device is left with at the end of a run: `files` and `page` are how that is
written, `about` who asked and what was spent, `kept` where it goes and how it is found again. How
it is scored is in `trellis.apps.common.evaluation`.
"""
