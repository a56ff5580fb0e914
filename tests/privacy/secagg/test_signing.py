from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from trellis.privacy.secagg import signing
from trellis.privacy.secagg.errors import BadMessage
from trellis.privacy.secagg.protocol import Policy

from .rounds import enter, plain, play, some_inputs

FORMATS = {
    "pem": (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8),
    "openssh": (serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH),
}


def private_file(path, key, form="openssh"):
    path.write_bytes(key.private_bytes(*FORMATS[form], serialization.NoEncryption()))
    return path


def public_line(name, key) -> str:
    data = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return f"{name} {data.decode()} a comment\n"


@pytest.fixture
def devices(tmp_path):
    """Five devices' keys, of both kinds, and their policies."""
    made = [
        Ed25519PrivateKey.generate() if i % 2 else ec.generate_private_key(ec.SECP384R1())
        for i in range(5)
    ]
    table = tmp_path / "trusted"
    lines = [public_line(f"client-{i}", key) for i, key in enumerate(made)]
    table.write_text("# our clients\n\n" + "".join(lines))
    trusted = signing.load_trusted_keys(table)
    policies = {}
    for i, key in enumerate(made):
        path = private_file(tmp_path / f"key-{i}", key, "pem" if i < 2 else "openssh")
        policies[i] = Policy(signing.load_signing_key(path), trusted)
    return policies


def test_signed_keys_are_accepted(devices):
    inputs = some_inputs(5)
    played = play(inputs, policy=devices, drop={"masked": {2}})
    np.testing.assert_array_equal(played.server.total_words(), plain(inputs, [0, 1, 3, 4]))


OTHER = X25519PrivateKey.generate().public_key().public_bytes_raw()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"signature": b"nonsense"}, "client-1 carries a wrong signature"),
        ({"signature": b""}, "client-1 is not signed"),
        ({"key": OTHER}, "client-1 carries a wrong signature"),
    ],
)
def test_keys_with_a_wrong_signature_are_refused(devices, change, reason):
    def tamper(stage, client, message):
        return replace(message, **change) if (stage, client) == ("advert", 1) else message

    with pytest.raises(BadMessage, match=reason):
        enter(5, policy=devices, tamper=tamper)


@pytest.mark.parametrize("change", [{"session": bytes(16)}, {"index": 6}, {"name": "client-3"}])
def test_a_signature_of_another_session_place_or_name_is_refused(devices, change):
    def tamper(stage, client, message):
        return replace(message, **change) if (stage, client) == ("hello", 1) else message

    with pytest.raises(BadMessage, match="client-1 carries a wrong signature"):
        enter(5, policy=devices, tamper=tamper)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("stranger", "stranger is not in this device's table"), ("client-2", "wrong signature|twice")],
)
def test_a_stranger_and_a_double_are_refused(devices, name, reason):
    def tamper(stage, client, message):
        if (stage, client) == ("meet", 0):
            return replace(message, names=[message.names[0], name, *message.names[2:]])
        return message

    with pytest.raises(BadMessage, match=reason):
        enter(5, policy=devices, tamper=tamper)


def test_a_table_with_one_key_for_two_names_is_refused(tmp_path):
    key = Ed25519PrivateKey.generate()
    for names in (("a", "b"), ("a", "a")):
        table = tmp_path / "-".join(names)
        table.write_text("".join(public_line(name, key) for name in names))
        with pytest.raises(ValueError, match=r"line 2: .* twice"):
            signing.load_trusted_keys(table)


def test_keys_of_another_kind_are_refused(tmp_path):
    key = rsa.generate_private_key(65537, 2048)
    with pytest.raises(ValueError, match="Ed25519 or ECDSA"):
        signing.load_signing_key(private_file(tmp_path / "rsa", key))
    table = tmp_path / "table"
    table.write_text(public_line("a", key))
    with pytest.raises(ValueError, match="line 1: use an Ed25519 or ECDSA"):
        signing.load_trusted_keys(table)


def test_files_that_are_no_keys_are_refused(tmp_path):
    path = tmp_path / "nothing"
    path.write_text("client-1 nothing")
    with pytest.raises(ValueError, match="no usable private key"):
        signing.load_signing_key(path)
    with pytest.raises(ValueError, match="line 1: 'name public-key' is expected"):
        signing.load_trusted_keys(path)
