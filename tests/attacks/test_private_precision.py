"""One noisy sum of concordances, against a server that chooses settings and messages.

Two data sets that differ in one record must look alike in everything a device says, but for what it
adds to a sum; and there they are no further apart than what the noise is for.
"""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from tests.attacks.same_device import with_secret
from tests.attacks.test_private_studies import CASES, ask, device, observable
from trellis import apps
from trellis.apps.common.runner import make_run_config
from trellis.apps.joint_precision import client_app as study
from trellis.apps.joint_precision.private import concordance, score
from trellis.privacy.accounting.budget import DeviceLedger, PrivacyRefused
from trellis.privacy.secagg.client import Summands
from trellis.sim.grid import LocalGrid
from trellis.strategies.core import wire

DP = {"privacy": "dp", "epsilon": 1.0, "clients": 5, "held-out": 0.2}
EVERY_CASE = pytest.mark.parametrize("case", range(len(CASES)), ids=[case[0] for case in CASES])
CONSENSUS = np.eye(4) + 0.2
SENT = {"a matrix": CONSENSUS, "an empty one": np.eye(4), "a huge one": 1e90 * CONSENSUS}


def terms_of(node, settings, consensus=None) -> Summands:
    """Return what a device adds to the sum of concordances, or to that of scores."""
    run_config = make_run_config("joint-precision", settings)
    content = RecordDict({"config": ConfigRecord({"server-round": 1})})
    kind, answer = "train", study.summands
    if consensus is not None:
        content["arrays"] = wire.record({"consensus": consensus})
        kind, answer = "evaluate", study.score
    with LocalGrid(apps.client_app, [node], run_config):
        message = Message(content, 1, f"{kind}.secagg_masked")
        return answer(message, Context(7, 1, node, RecordDict(), run_config))


@EVERY_CASE
@pytest.mark.parametrize("method", ["group", "glasso"])
def test_no_record_decides_what_a_device_says(case, method, tmp_path):
    settings = {**DP, "method": method}
    if method == "glasso":
        settings.pop("epsilon")
    run_config = make_run_config("joint-precision", settings)
    public = {"consensus": CONSENSUS, "points": np.array([0.3])}
    step = {"point": np.eye(4)[np.triu_indices(4)], "support": np.zeros(2, dtype=np.uint8)}
    seen = []
    for number, values in enumerate(CASES[case][1:]):
        node = device(tmp_path / str(number), values)
        answers = ask(
            run_config,
            node,
            ("query.enrol", {}, {}),
            ("query.personal", public, {}),
            ("evaluate", public, {}),
            ("train", step, {"ratio": 1.0}),
            ("train.screen", {}, {"cut": 0.0}),
        )
        seen.append([observable(answer) for answer in answers])
        assert seen[-1][1:3] == [{"personal": {"came": True}}] * 2
        assert seen[-1][3:] == ["error"] * 2
    assert seen[0] == seen[1]
    assert seen[0][0] != "error"


@EVERY_CASE
def test_one_record_moves_the_sum_by_no_more_than_the_noise_is_for(case, tmp_path):
    found = []
    for number, values in enumerate(CASES[case][1:]):
        node = with_secret(device(tmp_path / str(number), values))
        found.append(np.concatenate(list(terms_of(node, DP).arrays.values())))
    assert np.all(np.isfinite(found))
    # A line of csv that is one record may be read as another, or as none.
    assert np.linalg.norm(found[0] - found[1]) <= concordance.sensitivity(4) * (1.0 + 1e-9)


@EVERY_CASE
@pytest.mark.parametrize("sent", SENT)
def test_one_record_moves_the_score_by_one_at_most(case, sent, tmp_path):
    found = []
    for number, values in enumerate(CASES[case][1:]):
        node = with_secret(device(tmp_path / str(number), values))
        found.append(terms_of(node, DP, SENT[sent]).arrays["scores"])
    assert np.linalg.norm(found[0] - found[1]) <= score.SENSITIVITY


@pytest.mark.parametrize(
    "extreme",
    [
        {"epsilon": 1e-300},
        {"epsilon": 1e300},
        {"delta": 1e-299},
        {"delta": 1.0 - 1e-12, "epsilon": 1e-9},
    ],
    ids=str,
)
def test_no_scale_a_server_picks_makes_one_record_show(extreme, tmp_path):
    """Neither in whether a device enrols nor in whether it adds to the sum, nor in what it counts.

    What it counts is noise in whole numbers, without the gaps of floating point.
    """
    settings = {**DP, "epsilon": 0.5, **extreme}
    seen = []
    for number, odd in enumerate((0.0, 1e300, 1e-82)):
        values = np.random.default_rng(2).standard_normal((20, 4))
        values[0, 0] = odd
        node = with_secret(device(tmp_path / str(number), values))
        run_config = make_run_config("joint-precision", settings)
        (answer,) = ask(run_config, node, ("query.enrol", {}, {}))
        try:
            mine = terms_of(node, settings)
            size = sum(array.size for array in mine.arrays.values())
            drawn, _, _ = mine.noise(lambda *_, **__: 1, concordance.FRACTION_BITS, size)
            kind = drawn.dtype.kind
        except (PrivacyRefused, ValueError) as refusal:
            kind = str(refusal)
        events = DeviceLedger(tmp_path / str(number) / "s-a").events()
        assert {event.mechanism for event in events} <= {"summed-gaussian"}
        seen.append([observable(answer), kind, [event.sigma for event in events]])
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][1] == "i" or not seen[0][2]


@pytest.mark.parametrize(
    "settings", [{"held-out": 0.0}, {"method": "glasso"}, {"privacy": "none"}], ids=str
)
def test_a_score_that_was_not_declared_is_refused(settings, tmp_path):
    node = device(tmp_path, np.random.default_rng(0).normal(size=(20, 4)))
    chosen = {**DP, **settings}
    if "privacy" in settings or "method" in settings:
        chosen.pop("epsilon")
    words = r"no held-out score|no secure sum"
    with pytest.raises((ValueError, PrivacyRefused), match=words):
        terms_of(node, chosen, CONSENSUS)


def test_a_failure_while_trust_is_judged_does_not_show(tmp_path, monkeypatch):
    from trellis.apps.joint_precision.private import own

    def fails(*_):
        raise ValueError("sample 7 is strange")

    node = with_secret(device(tmp_path, np.random.default_rng(0).normal(size=(20, 4))))
    honest = terms_of(node, DP, CONSENSUS)
    monkeypatch.setattr(own, "choose_trust", fails)
    broken = terms_of(node, DP, CONSENSUS)
    assert honest.arrays["scores"][0] == broken.arrays["scores"][0]
    assert broken.arrays["scores"][1] == 0.0
