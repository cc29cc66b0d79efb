"""Values with a copy on every node. Contracts: remo/owned_var.h, remo/sst.h."""
from __future__ import annotations

import ctypes
import errno
from typing import Callable, Optional

from ._library import SST_READY, OwnedVarOptions, SSTOptions
from .ack import Ack, start
from .errors import check
from .node import Bytes, Node, Nodeset, Object, Ranks, wait_in_slices


class OwnedVar(Object):
    """A value of `size_bytes` bytes with one writer, the owner, and a cached copy at every participant."""

    _kind = 'owned_var'

    def __init__(self, node: Node, name: str, size_bytes: int, *, owner: int = 0, participants: Ranks = None):
        super().__init__(node, name, size_bytes,
                         OwnedVarOptions(participants=Nodeset.of(participants), owner=owner))
        self.size_bytes = size_bytes

    def store(self, value: Bytes) -> None:
        """Owner: set the value on this node. Other nodes get it by a push or a pull."""
        check(self._call('store', self._exactly(value, self.size_bytes)))

    def load(self) -> bytes:
        """Return the copy on this node, without network operations."""
        return self._fill('load')

    def push(self, node: Optional[int] = None, *, ack: Optional[Ack] = None) -> None:
        """Owner: write the value to a node, or to every other participant that is up."""
        done = start(ack)
        check(self._call('push_all', done) if node is None else self._call('push', node, done))

    def pull(self) -> bytes:
        """Read the owner's value into the copy on this node, and return it."""
        return self._fill('pull')

    def wait(self, old: Bytes, timeout: Optional[float] = None) -> bytes:
        """Wait until the copy on this node differs from `old`, and return it."""
        expected, into = self._exactly(old, self.size_bytes), ctypes.create_string_buffer(self.size_bytes)
        check(wait_in_slices(timeout, lambda ns: self._call('wait', expected, into, ns)))
        return into.raw

    def _fill(self, verb: str) -> bytes:
        into = ctypes.create_string_buffer(self.size_bytes)
        check(self._call(verb, into))
        return into.raw


class SST(Object):
    """A shared state table: a row of `row_bytes` bytes per participant, which writes it, with a
    copy at all others."""

    _kind = 'sst'

    def __init__(self, node: Node, name: str, row_bytes: int, *, participants: Ranks = None):
        super().__init__(node, name, row_bytes, SSTOptions(participants=Nodeset.of(participants)))
        self.row_bytes = row_bytes

    def store(self, row: Bytes) -> None:
        """Set the row of this node in its own copy only."""
        check(self._call('store', self._exactly(row, self.row_bytes)))

    def load(self, node: int) -> bytes:
        """Return this node's copy of a row, without network operations."""
        into = ctypes.create_string_buffer(self.row_bytes)
        check(self._call('load', node, into))
        return into.raw

    def push(self, node: Optional[int] = None, *, ack: Optional[Ack] = None) -> None:
        """Write the row of this node to a participant, or to every other participant that is up."""
        done = start(ack)
        check(self._call('push_all', done) if node is None else self._call('push', node, done))

    def wait(self, ready: Callable[[SST], bool], timeout: Optional[float] = None) -> None:
        """Wait until ``ready(table)`` is true. It is called whenever a row may have changed or a
        participant has failed. Its exceptions end the wait and reach the caller."""
        raised: list[BaseException] = []

        def test(_, __) -> int:
            try:
                return 1 if ready(self) else 0
            except BaseException as exception:  # it must not pass through the frames of the library
                raised.append(exception)
                return -errno.ECANCELED

        callback = SST_READY(test)
        code = wait_in_slices(timeout, lambda ns: self._call('wait', callback, None, ns))
        if raised:
            raise raised[0]
        check(code)
