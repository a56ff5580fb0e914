"""Whether a device has enough of its budget left for a run, told before its data is read."""

from __future__ import annotations

from trellis.apps.common.node import Node
from trellis.apps.common.settings import StudyConfig
from trellis.privacy.accounting.budget import DeviceLedger, Policy, PrivacyRefused
from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.accounting.sampled import ratio_for
from trellis.privacy.accounting.totals import total_epsilon


def check_budget(config: StudyConfig, node: Node, policy: Policy) -> None:
    """Refuse at enrolment what the device's ledger would refuse in the sum.

    Everyone else's sum then begins without this device. Depends on the ledger, not on the data.

    Raises
    ------
    PrivacyRefused
        Where the run's epsilon is more than the owner has left.
    """
    if node.simulated or node.state_path is None or not config.sums:
        return
    ratio = ratio_for(config.epsilon, config.delta)
    event = PrivacyEvent(
        name="enrolment",
        what="the run as a whole",
        round=0,
        epsilon=config.epsilon,
        delta=config.delta,
        sigma=1.0 / ratio,
        sensitivity=1.0,
        mechanism="summed-gaussian",
    )
    known = DeviceLedger(node.state_path, policy).events()
    total = total_epsilon([*known, event], policy.delta)
    if total > policy.max_epsilon * (1.0 + 1e-9):
        raise PrivacyRefused(
            f"refused: this run (epsilon {config.epsilon:g}) would bring the total to epsilon "
            f"{total:.4g} at delta {policy.delta:g}, above this device's max-epsilon "
            f"{policy.max_epsilon:g}"
        )
