"""The run-time allocator of network memory. Contract: remo/heap.h."""
from __future__ import annotations

import contextlib
import ctypes
from typing import Iterator, Optional

from ._library import Address, HeapOptions, HeapSizes
from .errors import check
from .node import Node, Nodeset, Object, Ranks, wait_in_slices


class Heap(Object):
    """Blocks of this node's network memory. Any node reads and writes them by address: an int, for
    ``node.read``, ``node.write``, ``node.fetch_add`` and ``node.compare_swap``."""

    _kind = 'heap'

    def __init__(self, node: Node, name: str, *, limit_bytes: int = 0, participants: Ranks = None):
        super().__init__(node, name,
                         HeapOptions(participants=Nodeset.of(participants), limit_bytes=limit_bytes))

    def alloc(self, size_bytes: int, alignment: int = 0) -> int:
        """Allocate a block, and return its address. Its content is undefined. Alignment 0: 16 bytes."""
        address = Address()
        check(self._call('alloc', size_bytes, alignment, address))
        return address.word

    def free(self, address: int) -> None:
        """Free a block of this node immediately. Requires that no peer uses its address."""
        check(self._call('free', Address(address)))

    def retire(self, address: int) -> None:
        """Free a block of this node after all currently pinned threads have unpinned."""
        check(self._call('retire', Address(address)))

    def reclaim(self, timeout: Optional[float] = None) -> None:
        """Wait until all blocks that this node retired before the call are free. A timeout raises Timeout."""
        check(wait_in_slices(timeout, lambda ns: self._call('reclaim', ns)))

    @contextlib.contextmanager
    def pinned(self) -> Iterator[None]:
        """Pin the heap in this thread: ``with heap.pinned():``. Addresses that are loaded in the block
        can be used until its end, which also raises the error of a lost write. After Timeout a write is
        in flight and the thread is still pinned: call unpin()."""
        self.pin()
        try:
            yield
        finally:
            self.unpin()

    def pin(self) -> None:
        check(self._call('pin'))

    def unpin(self) -> None:
        check(self._call('unpin'))

    def sizes(self) -> dict[str, int]:
        """Return the bytes of this node's blocks: reserved, live and retired."""
        sizes = HeapSizes()
        self._function('stats')(self.pointer, sizes)
        return {name: getattr(sizes, name) for name, _ in HeapSizes._fields_}
