"""What all messages are made of: bounds that are checked while decoding, and the class they come from."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

PROTOCOL_VERSION = 1
SUPERVISOR = -1  # the supervisor's place in the space of ranks

Count = Annotated[int, Meta(ge=0, le=2**62)]
Rank = Annotated[int, Meta(ge=0, le=2**31 - 1)]  # given by the supervisor, never used twice in a run
Text = Annotated[str, Meta(max_length=4096)]
Name = Annotated[str, Meta(max_length=512)]
MAX_WORKERS = 65_536


class Message(Struct, frozen=True, tag=True, array_like=True):
    """Root of all messages."""
