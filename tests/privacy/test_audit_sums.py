from __future__ import annotations

import numpy as np

from trellis.privacy.accounting.sampled import ratio_for
from trellis.privacy.audit_sums import audit_sum
from trellis.privacy.mechanisms.shares import plan_share

DELTA = 1e-3
TRIALS = 40_000


def finding(planned, honest=None, entries=3):
    share = plan_share(12, ratio_for(1.0, DELTA), 1.0, entries, planned)
    one, other = np.zeros(entries), np.zeros(entries)
    other[:2] = [0.6, -0.8]  # as far as a record may move it
    rng = np.random.default_rng(4)
    return audit_sum("a sum", one, other, share, delta=DELTA, trials=TRIALS, rng=rng, honest=honest)


def test_the_claim_holds_and_the_attack_comes_near_it():
    found = finding(planned=5)
    assert not found.refuted
    assert 0.3 < found.result.epsilon_lower <= found.claimed <= 1.0 + 1e-9


def test_the_same_attack_disproves_it_where_fewer_are_honest():
    assert finding(planned=40, honest=2).refuted


def test_a_record_that_changes_nothing_shows_nothing():
    share = plan_share(12, 0.5, 1.0, 2, 3)
    found = audit_sum(
        *("a sum", np.ones(2), np.ones(2), share),
        delta=DELTA,
        trials=2000,
        rng=np.random.default_rng(1),
    )
    assert found.result.epsilon_lower == 0.0
