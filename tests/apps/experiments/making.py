"""Figures of the papers, made by tests in their own folders."""

from __future__ import annotations

from trellis.apps.experiments.figures import figure
from trellis.apps.experiments.making import Making


def make(study, name, out, console, **numbers):
    """Make a figure with its own numbers but those given; errors are the test's."""
    found = figure(study, name)
    return found.function()(Making(name, out, console, {**found.numbers("test"), **numbers}))
