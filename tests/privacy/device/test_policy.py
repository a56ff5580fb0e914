"""The owner's policy: what is read, what is denied by default, what is refused."""

from __future__ import annotations

import pytest

from trellis.privacy.device.codes import PrivacyRefused
from trellis.privacy.device.policy import Policy, Wish
from trellis.privacy.device.policy_file import EXAMPLE, KEYS, PolicyError, read_policy, whole_config

DP = Wish("consensus-graph", "fedgl", "dp")


@pytest.fixture
def policy(tmp_path):
    """Return the policy of a file with this text, and more of the node config."""

    def read(text, **config):
        path = tmp_path / "policy.toml"
        path.write_text(text)
        return Policy.from_node_config({"policy": str(path), **config})

    return read


def test_the_example_passes_its_own_check_and_names_every_key(policy):
    found = policy(EXAMPLE)
    assert found.max_epsilon == 3.0
    assert found.run_epsilon == 1.0
    assert found.most_steps == 10_000
    found.permit_run(DP)
    assert all(f"{key} = " in EXAMPLE for key in KEYS if key != "require-privacy")


def test_a_file_denies_what_it_does_not_name(policy):
    found = policy("")
    assert found.modes == ("dp",)
    assert (found.labels, found.clear_updates, found.names) == (False, False, ())


@pytest.mark.parametrize(
    "key", [{"max-epsilon": 1.0}, {"run-epsilon": 1}, {"require-privacy": True}]
)
def test_a_budget_without_a_file_denies_the_same(key):
    found = Policy.from_node_config(key)
    assert found.modes == ("dp",)
    assert (found.labels, found.clear_updates, found.names) == (False, False, ())
    for wish in (
        Wish("s", "m", "none"),
        Wish("s", "m", "dp", clear_updates=True),
        Wish("s", "m", "dp", labels=True),
        Wish("s", "m", "dp", names={"loss": "os.system"}),
    ):
        with pytest.raises(PrivacyRefused):
            found.permit_run(wish)


def test_without_any_policy_classes_are_not_loaded_and_work_is_bounded():
    found = Policy.from_node_config({})
    found.permit_run(Wish("s", "m", "none", clear_updates=True, labels=True))
    with pytest.raises(PrivacyRefused, match=r"loss='a\.B'.*lists it in names"):
        found.permit_run(Wish("s", "m", "none", names={"loss": "a.B"}))
    with pytest.raises(PrivacyRefused, match=r"local-steps=1000000.*most-steps=100000"):
        found.permit_run(Wish("s", "m", "none", numbers={"local-steps": 10**6}))
    with pytest.raises(PrivacyRefused, match="most-megabytes=1000"):
        found.permit_size(10**10)


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ('studies = ["joint-precision"]', DP),
        ('methods = ["igl"]', DP),
        ("studies = []", DP),
        ('privacy = ["paper"]', DP),
        ("most-steps = 5", Wish("s", "m", "dp", numbers={"rounds": 6})),
        ('names = ["a.B"]', Wish("s", "m", "dp", names={"loss": "a.C"})),
    ],
)
def test_what_is_not_listed_is_refused(policy, text, wish):
    with pytest.raises(PrivacyRefused):
        policy(text).permit_run(wish)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max-epsilom = 1.0", "unknown key 'max-epsilom'; did you mean 'max-epsilon'"),
        ("[budget]\nepsilon = 1.0", "unknown key 'budget'; known: max-epsilon"),
        ("max-epsilon = true", "max-epsilon=True: must be a number"),
        ('max-epsilon = "3"', "max-epsilon='3': must be a number"),
        ("max-epsilon = nan", "must be a number"),
        ("max-epsilon = 0", "must be > 0"),
        ("delta = 1.0", "delta=1.0: must be between 0 and 1"),
        ('studies = "all"', "studies='all': must be a list"),
        ("names = [1]", "must be a list of texts"),
        ('privacy = ["loud"]', "must list some of none, paper, dp"),
        ("privacy = []", "must list some of"),
        ("share-labels = 1", "share-labels=1: must be true or false"),
        ("fewest-clients = 2", "must be a whole number >= 3"),
        ("fewest-share = 0.5", "must be > 0.5 and at most 1"),
        ("most-seconds = 1e9", "must be > 0 and at most"),
        ('privacy = ["none"]\nmax-epsilon = 1.0', "privacy allows 'none', which no budget counts"),
        ("max-epsilon = ", "no TOML"),
    ],
)
def test_a_mistake_in_the_file_is_named(policy, text, message):
    with pytest.raises(PolicyError, match=message) as caught:
        policy(text)
    assert "policy.toml" in str(caught.value)


def test_a_key_in_both_places_is_a_mistake(policy):
    with pytest.raises(PolicyError, match="max-epsilon is in the node config and in"):
        policy("max-epsilon = 1.0", **{"max-epsilon": 5.0})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"policy": "relative.toml"}, "give the absolute path"),
        ({"policy": "/nowhere/policy.toml"}, "cannot be read: No such file"),
        ({"max-epsilom": 1.0}, "did you mean 'max-epsilon'"),
        ({"require_privacy": True}, "did you mean 'require-privacy'"),
        ({"polisy": "/x"}, "did you mean 'policy'"),
        ({"requireprivacy": True}, "did you mean 'require-privacy'"),
        ({"max_epsilon": 0.5}, "did you mean 'max-epsilon'"),
        ({"datapath": "/x"}, "did you mean 'data-path'"),
        ({"Max-Epsilon": 0.5}, "did you mean 'max-epsilon'"),
        ({"zzz": "red"}, "zzz: unknown in a node config; known: max-epsilon"),
        ({"max-epsilon": "0.5"}, "max-epsilon='0.5': must be a number.*write it without quotes"),
        ({"require-privacy": "true"}, "must be true or false.*write it without quotes"),
        ({"simulation": "true"}, "simulation='true': must be true or false.*without quotes"),
        ({"partition-id": "first"}, "partition-id='first': must be a whole number"),
        ({"data-path": 3}, "data-path=3: must be a text"),
    ],
)
def test_a_mistake_in_the_node_config_is_named(config, message):
    with pytest.raises(PolicyError, match=message):
        Policy.from_node_config(config)


def test_a_changed_file_is_read_again_and_a_whole_config_stays_whole(policy, tmp_path):
    assert policy("max-epsilon = 1.0").max_epsilon == 1.0
    assert policy("max-epsilon = 12.0").max_epsilon == 12.0
    once = whole_config({"policy": str(tmp_path / "policy.toml"), "fewest-clients": 7})
    assert once["max-epsilon"] == 12.0
    assert once["fewest-clients"] == 7
    assert whole_config(once) == once
    assert read_policy(tmp_path / "policy.toml") == {"max-epsilon": 12.0}
