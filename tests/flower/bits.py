"""Two runs that must not differ in a bit."""

from __future__ import annotations

from trellis.apps.common.results import RunResult

# Metrics that tell how long something took.
VOLATILE = ("seconds", "slowest-client-seconds", "server-seconds")


def assert_same_bits(one: RunResult, other: RunResult) -> None:
    """Fail where arrays or metrics of two runs differ."""
    assert set(one.arrays) == set(other.arrays)
    for name, array in one.arrays.items():
        assert array.dtype == other.arrays[name].dtype
        assert array.tobytes() == other.arrays[name].tobytes(), name
    for mine, theirs in zip(one.metrics, other.metrics, strict=True):
        lasting = [{k: v for k, v in row.items() if k not in VOLATILE} for row in (mine, theirs)]
        assert str(lasting[0]) == str(lasting[1])  # nan equals nan
