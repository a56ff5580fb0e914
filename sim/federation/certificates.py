"""Keys and certificates of a federation: its own authority, the server's, every device's.

Adversary: whoever is on the network. The certificate authority signs one certificate, the
SuperLink's, and its private key then belongs on no machine of the federation. Devices prove
themselves by a key each (P-384, as Flower wants), which the SuperLink knows by the public half, and
sign what they say in secure sums by another (Ed25519), which the *other devices* know: a table of
their owners', in which the server has no say.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_YEARS = 10
_ALWAYS = ("localhost", "127.0.0.1", "::1")  # so that the federation can be rehearsed


@dataclass(frozen=True)
class Pair:
    """A private key and what is public of it, as the contents of two files."""

    private: bytes
    public: bytes


@dataclass(frozen=True)
class Authority:
    """A certificate authority: its private key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pair(self) -> Pair:
        """The contents of its two files."""
        return Pair(_pem(self.key), _certificate(self.certificate))


def make_authority() -> Authority:
    """Return a new certificate authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("Trellis federation CA")
    builder = _begun(name, name, key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    return Authority(key, builder.sign(key, hashes.SHA256()))


def make_server(authority: Authority, hosts: Sequence[str]) -> Pair:
    """Return key and certificate of a server that is reached by these names and addresses."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = [_alternative(host) for host in dict.fromkeys((*hosts, *_ALWAYS))]
    issuer = authority.certificate
    builder = _begun(_name(hosts[0] if hosts else "localhost"), issuer.subject, key.public_key())
    public: ec.EllipticCurvePublicKey = authority.key.public_key()
    for extension, critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(signs=False), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectAlternativeName(names), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(public), False),
    ):
        builder = builder.add_extension(extension, critical=critical)
    return Pair(_pem(key), _certificate(builder.sign(authority.key, hashes.SHA256())))


def make_node_key() -> Pair:
    """Return what ``ssh-keygen -t ecdsa -b 384`` makes: by it a SuperNode proves itself."""
    return _openssh(ec.generate_private_key(ec.SECP384R1()))


def make_signing_key() -> Pair:
    """Return what ``ssh-keygen -t ed25519`` makes: with it a device signs in secure sums."""
    return _openssh(ed25519.Ed25519PrivateKey.generate())


def _openssh(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> Pair:
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return Pair(private, public + b"\n")


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _certificate(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # for clocks that are a little behind
        .not_valid_after(now + timedelta(days=365 * _YEARS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
