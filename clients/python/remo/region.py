"""Memory of all nodes, and words that all nodes change. Contracts: remo/region.h, remo/atomic_var.h."""
from __future__ import annotations

import ctypes
from typing import Optional

from ._library import AtomicVarOptions, RegionOptions
from .ack import Ack, start
from .errors import check
from .node import Bytes, Node, Nodeset, Object, Ranks, source

_NOTIFY = 1


class Region(Object):
    """A range of network memory on each participant, which all participants read and write."""

    _kind = 'region'

    def __init__(self, node: Node, name: str, size_bytes: int, *, participants: Ranks = None,
                 providers: Ranks = None):
        super().__init__(node, name, size_bytes,
                         RegionOptions(participants=Nodeset.of(participants),
                                       providers=Nodeset.of(providers)))
        self.size_bytes = size_bytes

    @property
    def local(self) -> Optional[memoryview]:
        """The memory of this node, or None. Peers may modify it concurrently. Do not use it, or a
        view or array of it, after the region is closed: its memory is unmapped."""
        address = self._function('local')(self.pointer)
        if not address:
            return None
        return memoryview((ctypes.c_ubyte * self.size_bytes).from_address(address)).cast('B')

    def read(self, node: int, offset: int, size_bytes: int) -> bytes:
        """Read bytes of a node."""
        into = bytearray(size_bytes)
        self.read_into(node, offset, into)
        return bytes(into)

    def read_into(self, node: int, offset: int, into: bytearray | memoryview, *,
                  ack: Optional[Ack] = None) -> None:
        """Read bytes of a node into a writable buffer, and fill it. With an ack, start the read."""
        view = memoryview(into).cast('B')
        place = (ctypes.c_char * view.nbytes).from_buffer(view) if view.nbytes else None
        check(self._call('read', node, offset, place, view.nbytes, start(ack, place)))

    def write(self, node: int, offset: int, data: Bytes, *, notify: bool = False,
              ack: Optional[Ack] = None) -> None:
        """Write bytes to a node. A fence orders the write and reports its failure; `notify` wakes
        the waiters of the target when the data is placed. With an ack, start the write; `data` may
        be a part of ``local``, and is then left unchanged until the ack is complete."""
        check(self._call('write', node, offset, *source(data), _NOTIFY if notify else 0, start(ack)))

    def fetch_add(self, node: int, offset: int, addend: int = 1) -> int:
        """Add to a word of 8 bytes, modulo 2**64; return its old value."""
        old = ctypes.c_uint64()
        check(self._call('fetch_add', node, offset, addend, old, None))
        return old.value

    def compare_swap(self, node: int, offset: int, expected: int, desired: int) -> int:
        """Replace a word of 8 bytes if it is `expected`; return its old value."""
        old = ctypes.c_uint64()
        check(self._call('compare_swap', node, offset, expected, desired, old, None))
        return old.value


class AtomicVar(Object):
    """Words of 8 bytes that any node reads and changes atomically; initially zero."""

    _kind = 'atomic_var'

    def __init__(self, node: Node, name: str, count: int = 1, *, home: int = 0, striped: bool = False,
                 participants: Ranks = None):
        super().__init__(node, name,
                         AtomicVarOptions(participants=Nodeset.of(participants), count=count, home=home,
                                          place=1 if striped else 0))

    def load(self, index: int = 0) -> int:
        value = ctypes.c_uint64()
        check(self._call('load', index, value, None))
        return value.value

    def store(self, value: int, index: int = 0) -> None:
        check(self._call('store', index, value))

    def fetch_add(self, addend: int = 1, index: int = 0) -> int:
        """Add, modulo 2**64; return the old value."""
        old = ctypes.c_uint64()
        check(self._call('fetch_add', index, addend, old, None))
        return old.value

    def exchange(self, value: int, index: int = 0) -> int:
        """Replace the word; return the old value."""
        old = ctypes.c_uint64()
        check(self._call('exchange', index, value, old))
        return old.value

    def compare_swap(self, expected: int, desired: int, index: int = 0) -> int:
        """Replace the word if it is `expected`; return the old value."""
        old = ctypes.c_uint64()
        check(self._call('compare_swap', index, expected, desired, old, None))
        return old.value
