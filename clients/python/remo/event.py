"""A descriptor for event loops. Contract: remo/event.h."""
from __future__ import annotations

import asyncio

from .errors import check
from .node import Handle, Node


class Event(Handle):
    """A descriptor that becomes readable when the state of the node may have changed.

    Arm the event, check everything that the loop waits for with calls that do not wait (timeout 0),
    and then wait for the descriptor: with ``select``, ``selectors`` or ``loop.add_reader``, which
    all take the event itself, or with ``await event.changed()``. Each arming reports once. An armed
    event reports after 20 ms at the latest, because queues and locks notify only threads that wait
    in a call. Do not read or write the descriptor.
    """

    _kind = 'event'

    def __init__(self, node: Node):
        super().__init__(node, 'event', node.pointer)

    def fileno(self) -> int:
        """Return the descriptor."""
        return check(self._call('fd'))

    def arm(self) -> None:
        """Make the descriptor unreadable until a change after this call. Does not wait."""
        check(self._call('arm'))

    async def changed(self) -> None:
        """Wait in the running asyncio loop until the descriptor is readable. Arm the event first.
        One coroutine at a time."""
        loop = asyncio.get_running_loop()
        readable = loop.create_future()
        loop.add_reader(self, lambda: readable.done() or readable.set_result(None))
        try:
            await readable
        finally:
            loop.remove_reader(self)
