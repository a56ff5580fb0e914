"""The private methods of joint-precision: one noisy sum, and matrices made on the devices.

`concordance` is what a client puts into the one sum, `consensus` what the server makes of it, `own`
what a device makes of its raw data and the consensus, `score` the held-out score, `forecast` what
to expect before a run: functions on arrays. `device` answers messages with them.
"""
