"""What a client adds to a secure sum without noise, and does not change: in one sum of a run only.

Sums over changing sets of clients would give single ones away: their difference is the term of the
client that is in one and not in the other.
"""

from __future__ import annotations

from flwr.app import ConfigRecord, Context


def tell_once(context: Context, what: str) -> None:
    """Refuse to add ``what`` of this client to a second sum of the run.

    Raises
    ------
    ValueError
        Where it is in a sum already, whether that was opened or not.
    """
    key = f"told-{what}"
    if key in context.state:
        raise ValueError(
            f"this client's {what} is in a sum already; in another, over other clients, it would "
            "tell what single clients sent"
        )
    context.state[key] = ConfigRecord({"told": True})
