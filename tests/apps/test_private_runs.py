"""What a private run must show before it counts as completed, and whose settings an app reads."""

from __future__ import annotations

import pytest
from flwr.clientapp import ClientApp

from trellis import apps
from trellis.apps.common.runner import make_run_config
from trellis.apps.common.settings import ConfigError
from trellis.apps.consensus_graph import client_app as study
from trellis.apps.consensus_graph.config import ConsensusGraphConfig
from trellis.apps.consensus_graph.methods import METHODS
from trellis.privacy.secagg.client import register
from trellis.sim.grid import run_local
from trellis.strategies.core.enrolment import StudyError

STUDY = "consensus-graph"


def test_a_private_run_without_a_release_is_not_completed(tmp_path):
    """A variant's client that masks, and forgets the noise."""
    app = ClientApp()

    def without_noise(message, context):
        found = study.summands(message, context)
        return type(found)(found.arrays, found.clear)

    register(app, without_noise, study.score)
    app.query("enrol")(enrolled)
    config = make_run_config(STUDY, {"privacy": "dp", "clients": 3, "nodes": 6})
    nodes = [{"partition-id": i, "num-partitions": 3, "simulation": True} for i in range(3)]
    with pytest.raises(StudyError, match="no client entered a release"):
        run_local(apps.server_app, app, nodes, config | {"out": str(tmp_path)})


def enrolled(message, context):
    return study.app(message, context)


def test_a_method_that_releases_nothing_is_completed():
    result = apps.run(STUDY, {"method": "igl", "privacy": "dp", "clients": 3, "nodes": 6})
    assert result.status == "completed"


def test_settings_of_another_study_are_refused():
    config = {"study": "my-variant", "my-variant.privacy": "dp"}
    with pytest.raises(ConfigError, match=r"study='my-variant'.*would run with defaults"):
        ConsensusGraphConfig.from_run_config(config)


def test_every_setting_has_an_effect_somewhere():
    from trellis.apps.common.methods import OF_EVERY_RUN

    used = set().union(*(row.settings for row in METHODS.rows)) | OF_EVERY_RUN
    assert set(ConsensusGraphConfig.kinds()) == used
