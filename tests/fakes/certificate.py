"""Certificates made on the spot: an authority, and what it signs."""

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


def name(text: str) -> x509.Name:
    """Return a subject name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority:
    """Signs for 127.0.0.1 and localhost."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        built = self._builder("authority", "authority", self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.certificate = folder / "ca.pem"
        self.certificate.write_bytes(built.sign(self._key, SHA256()).public_bytes(Encoding.PEM))

    def pair(self, subject: str, passphrase: str = "") -> Pair:
        """Write a certificate and key for `subject` and return where they are."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
        signed = (
            self._builder(subject, "authority", key.public_key()).add_extension(names, critical=False).sign(self._key, SHA256())
        )
        files = Pair(self._folder / f"{subject}.pem", self._folder / f"{subject}.key")
        files.certificate.write_bytes(signed.public_bytes(Encoding.PEM))
        locked = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
        files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
        return files

    def _builder(self, subject: str, issuer: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(timezone.utc)
        return x509.CertificateBuilder(
            subject_name=name(subject),
            issuer_name=name(issuer),
            public_key=key,
            serial_number=x509.random_serial_number(),
            not_valid_before=now - timedelta(days=1),
            not_valid_after=now + timedelta(days=1),
        )
