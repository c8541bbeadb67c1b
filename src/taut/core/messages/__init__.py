"""Every message that crosses a socket, typed and bounded. Three families: between peers, to the supervisor, and back.

A message is one header (msgpack of one of these records) and, for some, payload frames that follow it. Decoding is in
``taut.transport.framing``; nothing here is ever unpickled. Bounds are checked while decoding.
"""

# ruff: noqa: F403  (each record is named once, in its family's file)
from taut.core.messages.base import *
from taut.core.messages.data import *
from taut.core.messages.membership import *
from taut.core.messages.peers import *
from taut.core.messages.supervisor import *
from taut.core.messages.worker import *
