"""How a server of a graph begins: it greets, hears who is there, and finds the round to start with.

Greetings travel along the edges until every server has them all, or the time is over. Then
neighbours show each other a first letter:

- of round 0: this server has not begun either. All begin with the round after the latest that one
  of them has kept, so that servers that are resumed together go on together;
- of a later round: the graph is at work. The letter lists who is taken in, and this server begins
  with the round after it, from what it has kept.

A round is told once. A server that stopped after it had told a round, and before it had kept it,
goes on with the next: told again, with another model under the same noise, the difference of the
two would be in the clear.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from flwr.serverapp import Grid

from trellis.strategies.core.enrolment import StudyError

from .board import OtherTerms
from .bridges import Bridges
from .spool import NO_LETTER

log = logging.getLogger("trellis.network")

KEPT_ROUND = "kept-round"
_WAIT, _PAUSE, _LOOK_EVERY = 5.0, 0.05, 1.0


def greet(
    mail: Bridges,
    grid: Grid,
    kept: int,
    *,
    mask: bytes = b"",
    facts: Mapping[str, Any] | None = None,
    look: Callable[[], None] = lambda: None,
    on_greeted: Callable[[], None] = lambda: None,
) -> int:
    """Meet the other servers; return the first round.

    Parameters
    ----------
    mail : of this server
    kept : the last round that this server has kept; 0 at its first start
    mask : public key for masks
    facts : what else the others must know of this server
    look : called now and then, to have new bridges found
    on_greeted : called when this server can be heard

    Raises
    ------
    StudyError
        Where a server runs with other settings.
    """
    mail.asking.grid = grid
    kept = max(kept, mail.spool.told)
    mail.board.greet(mask, {KEPT_ROUND: kept, **(facts or {})})
    mail.spool.clear()
    mail.spool.put_board(mail.board.encode())
    on_greeted()
    everyone = set(range(mail.graph.servers))
    next_look, deadline = 0.0, time.monotonic() + mail.place.greeting_timeout
    shown: dict[int, int] = {}
    at_work = False
    while time.monotonic() < deadline:
        if not at_work and _at_work(mail):
            # The others may wait for this server, and who is silent may be gone.
            at_work, deadline = True, min(deadline, time.monotonic() + mail.place.timeout)
        if everyone <= set(mail.board.greetings) and all(n.letter for n in mail.near.values()):
            break
        if time.monotonic() >= next_look:
            look()
            next_look = time.monotonic() + _LOOK_EVERY
        _show(mail, shown)
        everybody_known = everyone <= set(mail.board.greetings)
        left = deadline - time.monotonic()
        for p, near in mail.near.items():
            # Who has nothing to tell is not asked: its bridge would still be waiting, and answer
            # nothing else, when the first round begins.
            if near.letter is None or not everybody_known:
                wanted = NO_LETTER if near.letter else 0
                mail.asking.ask_idle(p, wanted, near.board, min(_WAIT, left))
        if not mail.asking.pull():
            time.sleep(_PAUSE)
    try:
        mail.board.agree()
    except OtherTerms as error:
        raise StudyError(str(error)) from None
    _show(mail, shown)
    return _first_round(mail, kept)


def _at_work(mail: Bridges) -> bool:
    return any(near.letter is not None and near.letter.number for near in mail.near.values())


def _show(mail: Bridges, shown: dict[int, int]) -> None:
    """Show neighbours that have greeted, since their last start, that this server has not begun."""
    greeted = {p: g.epoch for p, g in mail.board.greetings.items() if p in mail.near}
    if any(shown.get(p) != epoch for p, epoch in greeted.items()):
        mail.links.begin(greeted)
        mail.show()
        shown.update(greeted)


def _first_round(mail: Bridges, kept: int) -> int:
    names = mail.board.names
    for server in sorted(set(range(mail.graph.servers)) - set(mail.board.greetings)):
        mail.seen.note(0, server, "not heard of at the beginning")
    letters = {p: near.letter for p, near in mail.near.items() if near.letter is not None}
    mail.links.begin({p: mail.board.greetings[p].epoch for p in letters})
    there = ", ".join(names[p] for p in sorted(letters)) or "nobody"
    log.info("%s hears from %s", names[mail.place.server], there)
    ahead = max((letter.number for letter in letters.values()), default=0)
    if ahead:
        return max(ahead, kept) + 1
    rounds = [int(g.facts.get(KEPT_ROUND, 0)) for g in mail.board.greetings.values()]
    return max([kept, *rounds]) + 1
