"""Keys of board daemons and their clients: one CA, a certificate a host, one token."""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import RequestError, TransportError
from ..naming import install
from ..regular_file import read_regular
from ..writing import writing

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

CLIENT = "client"
FILES = ("ca.pem", "cert.pem", "key.pem", "token")
_DAYS = 825
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?|[0-9A-Fa-f:.]{2,45}", re.ASCII)
_TOKEN = re.compile(r"[!-~]{32,71}", re.ASCII)


def read_token(folder: Path) -> str:
    """The token of a folder of keys. TransportError."""
    path = folder / "token"
    try:
        text = read_regular(path, 256).decode("ascii", "replace").strip()
    except OSError as cause:
        raise TransportError(f"{path}: {cause.strerror}; make it with 'lora boardd init'") from None
    if not _TOKEN.fullmatch(text):
        raise TransportError(f"{path}: 32 to 71 printable characters expected")
    return text


def write_keys(folder: Path, hosts: Sequence[str]) -> list[Path]:
    """Makes `folder` with the CA's key, a folder for each host (its name or address) and one for
    clients; each has FILES and goes to its computer. Returns these folders. RequestError if
    `folder` is there already or a host's name is none; OSError names a file that cannot be written,
    and `folder` is removed."""
    try:
        from cryptography import x509  # noqa: F401
    except ImportError:
        raise RequestError(
            f"lora boardd init needs the package cryptography; {install('hosts')}"
        ) from None
    for host in hosts:
        if not _HOST.fullmatch(host) or host == CLIENT or ".." in host:
            raise RequestError(f"host {host!r}: a host's name or address expected")
    if len({host.lower() for host in hosts}) != len(hosts) or not hosts:
        raise RequestError(f"{len(hosts)} hosts named; each host once expected")
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise RequestError(f"{folder}: exists already; name a new folder") from None
    try:
        return _fill(folder, hosts)
    except BaseException:  # half of the keys would be in the way of the next try
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _fill(folder: Path, hosts: Sequence[str]) -> list[Path]:
    ca, ca_key = _authority()
    token = secrets.token_hex(32)
    _write(folder / "ca-key.pem", _key_bytes(ca_key))
    _write(folder / "ca.pem", _certificate_bytes(ca))
    made = []
    for host in (*hosts, CLIENT):
        made.append(folder / host)
        made[-1].mkdir(mode=0o700)
        certificate, key = _certificate(host, ca, ca_key)
        contents = (_certificate_bytes(ca), _certificate_bytes(certificate), _key_bytes(key))
        for name, data in zip(FILES, (*contents, f"{token}\n".encode()), strict=True):
            _write(made[-1] / name, data)
    return made


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with writing(path), os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _new_key() -> ec.EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _builder(name: str, issuer: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks of hosts differ
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
    )


_CA_NAME = "board daemons"


def _authority() -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    key = _new_key()
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _builder(_CA_NAME, _CA_NAME, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return builder.sign(key, hashes.SHA256()), key


def _certificate(
    host: str, ca: x509.Certificate, ca_key: ec.EllipticCurvePrivateKey
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A daemon is a client too: of the daemon at the other end of its cables."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key = _new_key()
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if host != CLIENT:
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
    builder = (
        _builder(host, _CA_NAME, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName([_name(host)]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
    )
    return builder.sign(ca_key, hashes.SHA256()), key


def _name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _certificate_bytes(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
