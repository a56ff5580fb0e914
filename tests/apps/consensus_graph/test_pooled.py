"""The pooled statistic of the private consensus: what one signal moves, units, noise."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from trellis.apps.common.metrics import matthews
from trellis.apps.consensus_graph.paper.private import Federation, at_home, pooled_statistic
from trellis.apps.consensus_graph.private import pooled
from trellis.apps.consensus_graph.problem import edge_ends, statistic
from trellis.apps.consensus_graph.solver import solve


def joint(signals, clip=0.0):
    parts = pooled.summands(signals, clip)
    assert {name: part.shape for name, part in parts.items()} == pooled.layout(
        signals.shape[1], clip
    )
    return np.concatenate(list(parts.values()))


def odd_signals(d: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    spike = np.eye(d)
    return [
        *spike[:3],
        -1e300 * spike[1],
        1e-300 * (spike[0] - spike[1]),
        np.ones(d),
        np.zeros(d),
        spike[0] - spike[1],
        spike[2] - spike[3],
        rng.normal(size=d),
        1.7e308 * np.where(np.arange(d) % 2, 1.0, -1.0),
        *(10.0**k * rng.normal(size=d) for k in (-150, -20, 3, 80, 150)),
    ]


@pytest.mark.parametrize("clip", [0.0, 1e-3, 25.0])
def test_no_pair_of_signals_is_further_apart_than_the_sensitivity(clip):
    bound, furthest = pooled.sensitivity(clip), 0.0
    signals = odd_signals(6)
    common = np.random.default_rng(1).normal(size=(9, 6))
    for one, other in itertools.combinations(signals, 2):
        moved = joint(np.vstack([common, one]), clip) - joint(np.vstack([common, other]), clip)
        furthest = max(furthest, float(np.linalg.norm(moved)))
        assert np.linalg.norm(moved) <= bound * (1.0 + 1e-9)
    # Orthogonal directions of different size: the bound is attained without a clip.
    assert furthest >= (0.999 if clip == 0.0 else 0.4) * bound


def test_a_clipped_signal_s_product_is_half_the_clip_at_most():
    rng = np.random.default_rng(3)
    worst = 0.0
    for d in (3, 4, 8):
        # Of one size at two halves of the nodes, |z|^2 = 4 |x|^4: the bound is tight there.
        half = np.where(np.arange(d) < d // 2, 1.0, -1.0)
        for x in (half, rng.normal(size=d), np.eye(d)[0]):
            part = pooled.summands(100.0 * x[None, :], 7.0)["shape"]
            worst = max(worst, float(np.linalg.norm(part)))
    assert 1.0 - 1e-9 <= worst <= 1.0 + 1e-9


def test_without_noise_the_pooled_statistic_is_that_of_the_directions():
    rng = np.random.default_rng(2)
    clients = [rng.normal(size=(n, 5)) @ rng.normal(size=(5, 5)) for n in (7, 30, 12)]
    parts = [pooled.summands(signals) for signals in clients]
    total = {name: sum(part[name] for part in parts) for name in parts[0]}
    found = pooled.pool(total, 49, 0.0, 0.0)
    everything = np.vstack(clients)
    centred = everything - everything.mean(axis=1, keepdims=True)
    units = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    a, b = edge_ends(5)
    plain = np.mean((units[:, a] - units[:, b]) ** 2, axis=0)
    np.testing.assert_allclose(found.z / found.z.mean(), plain / plain.mean(), rtol=1e-12)
    # The scale is the median size, to the width of a bin.
    scale = found.z.mean() / plain.mean()
    median = np.median(np.sum(centred**2, axis=1))
    assert 0.7 < scale / median < 1.4
    assert found.noise == 0.0


def test_with_a_clip_beyond_all_signals_it_is_the_plain_mean():
    signals = np.random.default_rng(2).normal(size=(40, 6))
    total = pooled.summands(signals, 1e6)
    np.testing.assert_allclose(pooled.pool(total, 40, 1e6, 0.0).z, statistic(signals), rtol=1e-9)


@pytest.mark.parametrize("sigma", [0.0, 6.0, 20.0])
def test_the_noise_is_what_the_pool_says(sigma):
    rng = np.random.default_rng(5)
    d, count, clean = 12, 1000, None
    signals = rng.normal(size=(count, d))
    total = pooled.summands(signals)
    clean = pooled.pool(total, count, 0.0, 0.0).z
    moved = []
    for _ in range(200):
        noisy = {n: part + sigma * rng.normal(size=part.shape) for n, part in total.items()}
        noisy["sizes"] = total["sizes"]  # the scale's own noise is another matter
        found = pooled.pool(noisy, count, 0.0, sigma)
        moved.append((found.z - clean) / clean.mean())
    # Taking out means and the trace removes a part of the noise, of order 1 / d.
    assert found.noise * 0.8 <= np.std(moved) <= found.noise or sigma == 0.0
    assert found.noise == pytest.approx((d - 1) * sigma / count)


@pytest.mark.parametrize("sigma", [0.0, 5.0, 15.0])
def test_the_typical_size_is_found_in_spite_of_noise(sigma):
    rng = np.random.default_rng(4)
    for exponent in (-20.0, 0.0, 13.0):
        signals = 10.0 ** (exponent / 2) * rng.normal(size=(1000, 20))
        signals[:30] *= 1e4  # outliers
        sizes = pooled.summands(signals)["sizes"]
        found = pooled.typical_size(sizes + sigma * rng.normal(size=sizes.shape))
        assert 0.5 < found / (19.0 * 10.0**exponent) < 2.0


@pytest.mark.parametrize("unit", [1e-3, 1e3, 2.0**-25])
def test_the_unit_of_the_data_changes_nothing_but_the_unit_of_the_graphs(unit):
    one = Federation.of(40, 30, 2)
    other = Federation(one.config, one.seed, one.truth, [unit * x for x in one.signals])
    results = [at_home(f, pooled_statistic(f, 1.0)) for f in (one, other)]
    (consensus, graphs), (scaled, rescaled) = results
    # The median size falls elsewhere within its octave, so weights agree within a factor two.
    ratio = scaled.sum() * unit**2 / consensus.sum()
    assert 0.5 < ratio < 2.0
    np.testing.assert_allclose(scaled / scaled.max(), consensus / consensus.max(), atol=1e-6)
    for i, w in graphs.items():
        np.testing.assert_allclose(rescaled[i] * unit**2, w, rtol=1e-6, atol=1e-9 * w.max())


def test_the_consensus_is_that_of_one_solve_with_its_edges_only():
    known = pooled.Pooled(statistic(np.random.default_rng(1).normal(size=(60, 7))), 0.0)
    beta = pooled.smoothness_beta(known.z, 2.0, pooled.SMOOTHNESS)
    w = solve(known.z, 2.0, beta).w
    found = pooled.consensus_of(known, 2.0)
    np.testing.assert_array_equal(found, np.where(w > 0.2 * w.max(), w, 0.0))
    # alpha beta / z^2 alone decides: another alpha gives the same edges.
    np.testing.assert_allclose(pooled.consensus_of(known, 5.0) / 2.5, found, rtol=1e-6)


def test_the_private_consensus_finds_what_clients_share():
    found = []
    for seed in (1, 2, 3, 4):
        federation = Federation.of(200, 50, seed)
        consensus = pooled.consensus_of(pooled_statistic(federation, 1.0), 2.0)
        found.append(matthews(consensus, federation.truth.consensus))
    assert np.mean(found) > 0.9


def test_noise_alone_still_gives_a_graph():
    rng = np.random.default_rng(0)
    for clip in (0.0, 25.0):
        total = {n: 300.0 * rng.normal(size=s) for n, s in pooled.layout(6, clip).items()}
        w = pooled.consensus_of(pooled.pool(total, 10, clip, 300.0), 2.0)
        assert np.all(np.isfinite(w) & (w >= 0.0))
        assert np.any(w > 0.0)
