"""Who may speak to the supervisor: holders of a good token, workers that are in the run already, and the run's owner."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from taut.transport.keys import JoinSecret, RunKeys, Token

Standing = Literal["joiner", "member", "owner", "void", "stranger"]


class AccessControl:
    """Judges client keys (z85). ``knows``: whether a key is that of a worker in the run; its token may have expired
    since it came, but when its connection breaks it comes back under its own key. ``clock``: seconds since 1970.

    >>> keys = RunKeys.generate().issue("guests", expires_at=50.0)
    >>> guest = Token.parse(keys.token_of("guests")).client_public.decode()
    >>> standings = [AccessControl(keys, clock=lambda: now).standing(guest) for now in (49.0, 51.0)]
    >>> standings, AccessControl(keys).standing("?" * 40)
    (['joiner', 'void'], 'stranger')
    """

    def __init__(self, keys: RunKeys, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.knows: Callable[[str], bool] = lambda key: False
        self.keys = keys

    @property
    def keys(self) -> RunKeys:
        return self._keys

    @keys.setter
    def keys(self, keys: RunKeys) -> None:
        """Judge by other keys from now on: workers that are connected stay so."""
        self._keys = keys
        self._owner = keys.admin.client_public.decode("ascii")
        self._joiners: dict[str, JoinSecret] = {
            Token.parse(keys.token_of(one.name)).client_public.decode("ascii"): one for one in keys.join_secrets
        }

    def standing(self, key: str) -> Standing:
        if key == self._owner:
            return "owner"
        secret = self._joiners.get(key)
        if secret is not None:
            void = secret.name in self._keys.revoked or secret.expired(self._clock())
            return "void" if void else "joiner"
        return "member" if self.knows(key) else "stranger"

    def allows(self, key: str) -> bool:
        return self.standing(key) in ("joiner", "member", "owner")

    def is_void(self, key: str) -> bool:
        """Return whether a key was good once: its holder is told so."""
        return self.standing(key) == "void"

    def is_owner(self, key: str) -> bool:
        return key == self._owner

    def token_name(self, key: str) -> str | None:
        """Return the name of the token that the holder of ``key`` came with."""
        secret = self._joiners.get(key)
        return None if secret is None else secret.name
