"""Certificates of a test's own, as a server and its clients have them."""

from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization


def write(folder: Path) -> None:
    """Writes ca.pem; server.pem, a certificate of 127.0.0.1 with its key; client.pem and client.key; and other.pem, an
    authority that signed none of them.
    """
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    server = authority.issue_cert("127.0.0.1")
    chain = b"".join(pem.bytes() for pem in server.cert_chain_pems)
    (folder / "server.pem").write_bytes(_pkcs8(server.private_key_pem.bytes()) + chain)
    client = authority.issue_cert("client.test")
    client.private_key_pem.write_to_path(str(folder / "client.key"))
    client.cert_chain_pems[0].write_to_path(str(folder / "client.pem"))
    trustme.CA().cert_pem.write_to_path(str(folder / "other.pem"))


def _pkcs8(key: bytes) -> bytes:
    """A private key in the form that Java reads."""
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return serialization.load_pem_private_key(key, None).private_bytes(*form)
