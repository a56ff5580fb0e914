"""What a device says when something goes wrong: a code, and nothing else.

Flower sends the text of an exception to the server, and a text may quote a cell of the data. So on
a device every failure becomes `DeviceError`, whose text depends on its code only; what happened
stands in the device's log. Codes say *where* it failed. Under ``privacy = "dp"`` everything that
may depend on the data has one code: that a file has a text where a number should be, and that a
solver did not converge, look the same from outside.

Adversary: the server, which sees every reply. Not covered: how long a device took.
"""

from __future__ import annotations

import re

CODES = {
    "E1": "the run's settings or this device's node config are not valid",
    "E2": "the data cannot be read or used (told in runs with privacy='none' only)",
    "E3": "the data cannot be used, the computation failed, or it took too long",
    "E4": "refused by the owner's policy",
    "E5": "secure aggregation was stopped by this device",
    "E9": "anything else",
}

# Who can mend it, and what to do; told in the reference and nowhere on the wire.
REMEDIES = {
    "E1": "The operator looks at the run's settings, `trellis run` names what is wrong with them; "
    "else the owner at the node config and the policy: `trellis deploy check` says the key, and so "
    "does the device's log",
    "E2": "The owner reads the device's log, which names the file, the row and the column",
    "E3": "The owner reads the device's log. Where time was up, allow more (`most-seconds`), or "
    "ask the operator for smaller settings",
    "E4": "The owner sees in the log what was asked for and which key of the policy would allow "
    "it; `trellis device ledger STATE` says what is left of the budget. The operator asks for less",
    "E5": "The operator makes sure that enough clients take part and stay, and that all have the "
    "same table of keys; the log says which check failed",
    "E9": "The owner reads the device's log; it failed before the run was judged",
}

REFUSED = "refused by the owner's policy (E4); its owner finds the reason in the device's log"


class DeviceError(RuntimeError):
    """All that a server hears of a failure on a device.

    Parameters
    ----------
    code : one of `CODES`
    """

    def __init__(self, code: str) -> None:
        super().__init__(f"device error {code}; its owner finds the details in the device's log")
        self.code = code


_TOLD = re.compile(r"(?:DeviceError: )?device error (E\d);")


def in_words(reason: str) -> str:
    """Return what a server heard of a failure, with the code's meaning where there is a code."""
    found = _TOLD.search(reason)
    if found is None or found[1] not in CODES:
        return reason
    meaning = CODES[found[1]].partition(" (")[0].replace("this device", "the device")
    return _TOLD.sub(lambda _: f"{meaning} (device error {found[1]});", reason, count=1)


class PrivacyRefused(PermissionError):
    """A run or a release that this device does not allow; its text is for the device's owner."""
