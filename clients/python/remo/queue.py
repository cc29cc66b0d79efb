"""Queues and ring buffers. Contracts: remo/queue.h, remo/ringbuffer.h."""
from __future__ import annotations

import ctypes
import errno
from typing import Optional

from ._library import QueueOptions, RingBufferOptions
from .errors import check
from .node import Bytes, Node, Nodeset, Object, Ranks, source, wait_in_slices

_SLOT_BYTES = 56  # the default of the library


def _next(call, room_bytes: int, timeout: Optional[float]) -> Optional[bytes]:
    """Return one element of ``call(buffer, bytes, size, timeout_ns)``, or None after the timeout."""
    into, size = ctypes.create_string_buffer(room_bytes), ctypes.c_size_t()
    code = wait_in_slices(timeout, lambda ns: call(into, room_bytes, size, ns))
    if code == -errno.ETIMEDOUT:
        return None
    check(code)
    return ctypes.string_at(into, size.value)


class Queue(Object):
    """A bounded FIFO queue: any node pushes, any node pops."""

    _kind = 'queue'

    def __init__(self, node: Node, name: str, capacity: int = 0, *, slot_bytes: int = 0, home: int = 0,
                 participants: Ranks = None):
        super().__init__(node, name, QueueOptions(participants=Nodeset.of(participants), capacity=capacity,
                                                  slot_bytes=slot_bytes, home=home))
        self.slot_bytes = slot_bytes or _SLOT_BYTES

    def push(self, element: Bytes, timeout: Optional[float] = None) -> bool:
        """Append an element. Return False if the queue is still full after the timeout."""
        data = source(element)
        code = wait_in_slices(timeout, lambda ns: self._call('push', *data, ns))
        return code != -errno.ETIMEDOUT and check(code) == 0

    def pop(self, timeout: Optional[float] = None) -> Optional[bytes]:
        """Remove the first element, and return it, or None after the timeout."""
        return _next(lambda *arguments: self._call('pop', *arguments), self.slot_bytes, timeout)


class RingBuffer(Object):
    """Messages of one sender to all other participants, in order."""

    _kind = 'ringbuffer'

    def __init__(self, node: Node, name: str, *, sender: int = 0, capacity_bytes: int = 0,
                 participants: Ranks = None):
        super().__init__(node, name, RingBufferOptions(participants=Nodeset.of(participants), sender=sender,
                                                       capacity_bytes=capacity_bytes))
        self.message_bytes_max = self._call('message_bytes_max')

    def send(self, message: Bytes, timeout: Optional[float] = None) -> int:
        """Sender: send to every receiver that is up; return the position for wait_received."""
        data, position = source(message), ctypes.c_uint64()
        check(wait_in_slices(timeout, lambda ns: self._call('send', *data, ns, position)))
        return position.value

    def wait_received(self, position: int, timeout: Optional[float] = None) -> None:
        """Sender: wait until every receiver that is up has acknowledged all messages up to `position`."""
        check(wait_in_slices(timeout, lambda ns: self._call('wait_received', position, ns)))

    def receive(self, timeout: Optional[float] = None) -> Optional[bytes]:
        """Receiver: return the next message, or None after the timeout."""
        return _next(lambda *arguments: self._call('receive', *arguments), self.message_bytes_max, timeout)

    def acknowledge(self) -> None:
        """Receiver: acknowledge all messages received so far."""
        check(self._call('acknowledge'))
