"""What the paper says of Fig. 5, judged by the rounds that were timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trellis.apps.experiments.finding import Finding, Verdict

from .listening import BITS_A_SECOND

Row = Mapping[str, Any]
_SWAP = 180  # rounds, from which on the paper's server slows down
_SETTLED = 19  # place of a round by which all is allocated
_CLEARLY = 1.2  # times as long
_SPARSE = 1.5  # numbers a number with its place takes: 8 bytes and 4


def judged(summary: Sequence[Row], by_round: Sequence[Row]) -> list[Finding]:
    """Return the verdicts, from medians of every run and from all rounds."""
    by_d, by_n, by_share = ([r for r in summary if r["sweep"] == s] for s in ("d", "n", "kept"))
    return [
        _overtakes(by_d),
        _server_least(by_d),
        _memory(by_d, by_round),
        _samples(by_n),
        _longer("fig5-n-local", by_n[-1], by_n[0], _SAMPLES, "the step decomposes S whatever n is"),
        _longer("fig5-s-local", by_share[0], by_share[-1], _DENSITY, _SAME_WORK),
        _sparse(by_share[0], by_round),
        _slope("cost-local", by_d, "local", 3.0),
        _slope("cost-server", by_d, "server", 2.0),
    ]


_SAMPLES = "local step at n = {0[n]} takes {2:.2f} times that at n = {1[n]} (d = {0[d]})"
_DENSITY = (
    "local step with {0[value]:.0%} of the edges takes {2:.2f} times that with all of them "
    "(d = {0[d]})"
)
_SAME_WORK = "a dense eigendecomposition takes as long whatever graph is behind it"


def _overtakes(rows: Sequence[Row]) -> Finding:
    """See whether local computation overtakes sending as d grows."""
    ratios = [row["local"] / row["link"] for row in rows]
    first, last = rows[0], rows[-1]
    cross = 8.0 * (last["bytes-up"] + last["bytes-down"]) / last["local"]
    rising = ratios[-1] > 1.5 * ratios[0]
    found = (
        f"local over sending at 5 Mbit/s: {ratios[0]:.2g} at d = {first['d']}, {ratios[-1]:.2g} "
        f"at d = {last['d']} ({last['local']:.2g} s against {last['link']:.2g} s a round, "
        f"{last['rounds']} rounds); they would cross there at {cross / 1e6:.0f} Mbit/s"
    )
    if ratios[0] < 1.0 < ratios[-1]:
        return Finding("fig5-overtakes", found, "reproduced")
    if rising and ratios[-1] <= 1.0:
        why = (
            "the ratio rises with d as said, but at the stated bandwidth sending still takes "
            f"{1.0 / ratios[-1]:.0f} times as long at the largest d"
        )
        return Finding("fig5-overtakes", found, "partly", why)
    why = f"at {BITS_A_SECOND / 1e6:g} Mbit/s the ratio does not pass 1 as d grows"
    return Finding("fig5-overtakes", found, "refuted", why)


def _server_least(rows: Sequence[Row]) -> Finding:
    """See whether the server's step takes least, at every d."""
    shares = [row["server"] / min(row["local"], row["link"]) for row in rows]
    found = ", ".join(
        f"d = {row['d']}: {row['server']:.2g} s (local {row['local']:.2g}, link {row['link']:.2g})"
        for row in rows
    )
    if max(shares) < 1.0:
        return Finding("fig5-server-least", found, "reproduced")
    late = [row["d"] for row, share in zip(rows, shares, strict=True) if share >= 1.0]
    verdict: Verdict = "partly" if shares[-1] < 1.0 else "refuted"
    why = f"at d = {', '.join(map(str, late))} the server is not the least"
    return Finding("fig5-server-least", found, verdict, why)


def _memory(rows: Sequence[Row], by_round: Sequence[Row]) -> Finding:
    """See whether the server slows down beyond round 180 at the largest d run that long."""
    long = [row for row in rows if row["rounds"] > _SWAP]
    if not long:
        why = f"no run of more than {_SWAP} rounds was made at this size"
        return Finding("fig5-memory", f"{rows[-1]['rounds']} rounds", "not testable", why)
    at = long[-1]
    own = [r for r in by_round if (r["sweep"], r["value"]) == ("d", at["value"])]
    before = float(np.median([r["server"] for r in own if r["round"] <= _SWAP]))
    after = float(np.median([r["server"] for r in own if r["round"] > _SWAP]))
    grown = (own[-1]["memory"] - own[_SETTLED]["memory"]) / 1e6
    found = (
        f"server's step beyond round {_SWAP} takes {after / before:.2f} times that before, memory "
        f"grows by {grown:.0f} MB from round {_SETTLED + 1} to {at['rounds']} (d = {at['d']})"
    )
    if after > 1.5 * before:
        return Finding("fig5-memory", found, "reproduced")
    why = "memory does not grow with the rounds here: it was a property of the paper's programme"
    return Finding("fig5-memory", found, "refuted", why)


def _samples(rows: Sequence[Row]) -> Finding:
    """See whether n leaves the server's time and the bytes as they are."""
    sent = [row["bytes-up"] + row["bytes-down"] for row in rows]
    server = [row["server"] for row in rows]
    steady = max(server) / min(server)
    apart = (max(sent) - min(sent)) / max(sent)
    found = (
        f"n = {rows[0]['n']} to {rows[-1]['n']}: bytes of a round differ by {apart:.1%}, the "
        f"server's time by a factor of {steady:.2f}"
    )
    if apart < 0.1 and steady < 1.5:
        return Finding("fig5-n", found, "reproduced")
    why = "one of the two changes with n by more than it varies from run to run"
    return Finding("fig5-n", found, "partly" if apart < 0.1 or steady < 1.5 else "refuted", why)


def _longer(claim: str, this: Row, other: Row, words: str, why: str) -> Finding:
    """See whether a local step takes clearly longer in one run than in another."""
    ratio = this["local"] / other["local"]
    found = words.format(this, other, ratio)
    if ratio > _CLEARLY:
        return Finding(claim, found, "reproduced")
    return Finding(claim, found, "refuted", why)


def _sparse(sparsest: Row, by_round: Sequence[Row]) -> Finding:
    """See whether numbers without zeros would take fewer bytes, at first and later."""
    own = [r for r in by_round if (r["sweep"], r["value"]) == ("kept", sparsest["value"])]
    first, last = own[0], own[-1]
    saves = {
        (when, way): row[f"nonzero-{way}"] * _SPARSE < 1.0
        for when, row in (("first", first), ("last", last))
        for way in ("down", "up")
    }
    found = (
        f"share of nonzero numbers with {sparsest['value']:.0%} of the edges: to clients "
        f"{first['nonzero-down']:.0%} in the first round, {last['nonzero-down']:.0%} in the last; "
        f"to the server {first['nonzero-up']:.0%} and {last['nonzero-up']:.0%}"
    )
    if saves["first", "up"] and saves["first", "down"] and not saves["last", "up"]:
        return Finding("fig5-s-sent", found, "reproduced")
    why = "Omega has no zeros from the first round on, so no sparse format helps on the way up"
    helps = any(saves.values())
    why = why if not saves["first", "up"] else "what is sent stays sparse"
    return Finding("fig5-s-sent", found, "partly" if helps else "refuted", why)


def _slope(claim: str, rows: Sequence[Row], part: str, order: float) -> Finding:
    """Hold the growth of a part's time with p against the order that is stated."""
    sizes = [10.0 * row["d"] for row in rows]
    seconds = [row[part] for row in rows]
    slope = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
    found = (
        f"{part} time grows as p^{slope:.2f} from p = {sizes[0]:.0f} to {sizes[-1]:.0f} "
        f"({seconds[0]:.2g} s to {seconds[-1]:.2g} s)"
    )
    # Large matrices leave the cache, which is no matter of operations.
    if slope <= order + 0.5:
        return Finding(claim, found, "reproduced")
    why = f"it grows faster than p^{order:g} at these sizes"
    return Finding(claim, found, "partly" if slope <= order + 1.0 else "refuted", why)
