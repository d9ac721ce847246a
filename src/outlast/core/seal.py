"""Encryption of what is stored: keys, and the envelope that stands for a value in the engine.

An envelope is JSON, `{"$enc": "<key id>:<base64 of nonce and AES-256-GCM>"}`, bound to its owner (a
task, a record) and its field: moved elsewhere it does not open. Each owner has a key of its own,
derived from the given one, so that random nonces never come near the number at which two meet.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from base64 import b64decode, b64encode, urlsafe_b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from outlast.core.errors import BadInput, KeyMissing, Unsupported
from outlast.core.model import Json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SETTING: Final = "OUTLAST_ENCRYPTION_KEYS"
KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_HEAD: Final = b'{"$enc":"'
_TAIL: Final = b'"}'
_ENVELOPE: Final = re.compile(rb'\{"\$enc":"([\w.-]{1,32})(?::([A-Za-z0-9+/=]+))?"\}')
_ID: Final = re.compile(r"[\w.-]{1,32}", re.ASCII)


def is_sealed(data: Json) -> bool:
    return data.startswith(_HEAD) and _ENVELOPE.fullmatch(data) is not None


def key_of(data: Json) -> str | None:
    """The id of the key that sealed it; None when it is not sealed."""
    found = _ENVELOPE.fullmatch(data)
    return found[1].decode() if found else None


def readable(data: Json, what: str) -> Json:
    """What was read, unless it could not be opened."""
    name = key_of(data)
    if name is None:
        return data
    raise KeyMissing(
        f"{what} is encrypted with the key {name!r}, which does not open it here: add it to"
        f" {SETTING}."
    )


def bare(data: Json) -> Json:
    """An envelope that cannot be opened, as it is shown: the id of its key."""
    return _HEAD + (key_of(data) or "").encode() + _TAIL


def new_key() -> str:
    """A key in the form that the setting takes."""
    secret = os.urandom(KEY_BYTES)
    return f"{_named(secret)}:{b64encode(secret).decode()}"


@dataclass(frozen=True, slots=True, repr=False)
class Seal:
    """The keys of a process: the first seals, all of them open."""

    keys: tuple[tuple[str, bytes], ...] = ()

    @classmethod
    def of(cls, given: str | Sequence[str]) -> Seal:
        entries = given.split(",") if isinstance(given, str) else given
        keys: dict[str, bytes] = {}
        for place, entry in enumerate(filter(None, map(str.strip, entries)), 1):
            name, secret = _read(entry, place)
            if keys.setdefault(name, secret) != secret:
                raise BadInput(f"{SETTING}, entry {place}: the id {name!r} is there twice.")
        if keys:
            _cipher(bytes(KEY_BYTES), "")  # a missing library is told now
        return cls(tuple(keys.items()))

    def __repr__(self) -> str:
        return f"Seal({', '.join(self.names)})"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.keys)

    def close(self, data: Json, owner: str, field: str) -> Json:
        """The envelope of a value."""
        name, secret = self.keys[0]
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + _cipher(secret, owner).encrypt(nonce, data, _bound(owner, field))
        return b"%b%b:%b%b" % (_HEAD, name.encode(), b64encode(sealed), _TAIL)

    def open(self, data: Json, owner: str, field: str) -> Json:
        """The value of an envelope; what is none is given back as it is (it was stored before
        there were keys). `KeyMissing` when it does not open."""
        if not data.startswith(_HEAD):
            return data
        found = _ENVELOPE.fullmatch(data)
        if found is None:
            return data
        name = found[1].decode()
        secret = dict(self.keys).get(name)
        if secret is None or found[2] is None:
            raise KeyMissing(
                f"This is encrypted with the key {name!r}, which this process does not have: add"
                f" it to {SETTING}."
            )
        from cryptography.exceptions import InvalidTag

        sealed = b64decode(found[2])
        nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return _cipher(secret, owner).decrypt(nonce, rest, _bound(owner, field))
        except InvalidTag:
            raise KeyMissing(
                f"The {field} of {owner} does not open with the key {name!r}: it was encrypted with"
                " another key of that id, or was changed in the database."
            ) from None

    def digest(self, text: str) -> tuple[str, ...]:
        """A digest that tells nothing without the keys: of the first key, and of the others."""
        return tuple(
            hmac.new(secret, b"digest" + text.encode(), hashlib.sha256).hexdigest()
            for _, secret in self.keys
        )


def _read(entry: str, place: int) -> tuple[str, bytes]:
    name, mark, text = entry.rpartition(":")
    try:
        secret = urlsafe_b64decode(
            text.replace("+", "-").replace("/", "_") + "=" * (-len(text) % 4)
        )
    except ValueError:
        secret = b""
    if len(secret) != KEY_BYTES or (mark and not _ID.fullmatch(name)):
        raise BadInput(
            f"{SETTING}, entry {place}: write id:key or key, the key being {KEY_BYTES} bytes in"
            " base64; `outlast keys encryption` makes one.",
            field=SETTING,
        )
    return name or _named(secret), secret


def _named(secret: bytes) -> str:
    return "k" + hashlib.sha256(b"outlast key id" + secret).hexdigest()[:8]


def _bound(owner: str, field: str) -> bytes:
    return f"{owner}\0{field}".encode()


@lru_cache(maxsize=4_096)  # what a task's payload, progress and result need is made once
def _cipher(secret: bytes, owner: str) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ModuleNotFoundError as missing:
        raise Unsupported(
            "There are encryption keys, and encryption needs cryptography:"
            " pip install 'outlast[encryption]'"
        ) from missing
    return AESGCM(hmac.digest(secret, owner.encode(), "sha256"))
