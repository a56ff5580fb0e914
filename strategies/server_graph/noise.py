"""Where the servers' noise comes from, and that a resumed run repeats it.

Where every client is simulated it comes from the run's seed, so that runs repeat; whoever knows the
seed takes it off, and nobody is protected by it. As soon as one client is a device it comes from a
secret: 32 bytes of the operating system's entropy, drawn for this run and kept in the folder of its
checkpoint, in a file that only its owner can read. It is in no result, no record and no message. A
run that is resumed draws the same noise again: a round that servers had told each other before the
crash is not told a second time under other noise, which would average it away.

Adversary: whoever sees the servers' messages and knows the run config, the seed in it included. Not
covered: who reads the secret's file, or the memory of the process that plays the servers.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from trellis.privacy.mechanisms.noise import (
    NoiseSource,
    device_secret,
    fresh_secret,
    release_noise,
)
from trellis.strategies.core.enrolment import StudyError

from .exchange import Noise

_FOLDER = "server-noise"


class ServerNoise:
    """The noise of (server, round), as `trellis.strategies.server_graph.exchange` asks for it.

    Parameters
    ----------
    simulated_noise : of (server, round), from the run's seed
    folder : the checkpoint's, where the secret is kept; None keeps it in memory
    resume : whether the run goes on with what is in ``folder``

    Until `decide` is called every client counts as a device.
    """

    def __init__(
        self, simulated_noise: Noise, folder: Path | None = None, resume: bool = False
    ) -> None:
        self.simulated = False
        self._simulated_noise = simulated_noise
        self._folder = None if folder is None else folder / _FOLDER
        self._resume = resume
        self._secret: bytes | None = None

    def decide(self, simulated: bool) -> None:
        """Say whether all clients are simulated; before the first round.

        Raises
        ------
        StudyError
            Where a run on devices is resumed and its secret is gone.
        """
        self.simulated = simulated
        if self._folder is not None and not self._resume:
            shutil.rmtree(self._folder, ignore_errors=True)  # of an earlier run
        if not simulated:
            self._secret = self._kept_secret()

    def __call__(self, server: int, server_round: int) -> NoiseSource:
        """Return the noise of one server in one round, from its beginning."""
        if self.simulated:
            return self._simulated_noise(server, server_round)
        if self._secret is None:
            self._secret = self._kept_secret()
        return release_noise(self._secret, "server noise", str(server), str(server_round))

    def _kept_secret(self) -> bytes:
        if self._folder is None:
            return fresh_secret()
        begun = (self._folder.parent / "state.npz").is_file()
        if self._resume and begun and not (self._folder / "secret").is_file():
            raise StudyError(
                f"{self._folder}: the secret of the servers' noise is gone, so the noise of rounds "
                "that were told already cannot be repeated; start anew in another folder"
            )
        return device_secret(self._folder)
