"""Locks and barriers. Contracts: remo/lock.h, remo/barrier.h."""
from __future__ import annotations

import enum
import errno
from typing import Callable, Optional

from ._library import BarrierOptions, LockOptions
from .errors import check, error
from .node import Fence, Node, Nodeset, Object, Ranks, timeout_ns, wait_in_slices


class Acquired(enum.Enum):
    """How a lock was acquired."""
    CLEAN = 0
    OWNER_DEAD = 1  # the last holder failed: repair the protected data, then call consistent()


class LockTable(Object):
    """Locks that nodes and threads acquire by index. ``with table[3]:`` holds lock 3."""

    _kind = 'lock'

    def __init__(self, node: Node, name: str, count: int = 1, *, homes: Ranks = None,
                 participants: Ranks = None):
        super().__init__(node, name, LockOptions(participants=Nodeset.of(participants), count=count,
                                                 homes=Nodeset.of(homes)))
        self.count = count

    def __getitem__(self, index: int) -> Lock:
        return Lock(self, index)

    def acquire(self, index: int, timeout: Optional[float] = None) -> Acquired:
        """Acquire a lock. A failed holder is a result; a timeout raises Timeout.

        Without a timeout the call waits until it holds the lock, or the lock's home fails. Ctrl-C
        takes effect after the call, because a wait in several parts would lose its position in the
        queue."""
        code = self._call('acquire', index, timeout_ns(timeout))
        if code == -errno.EOWNERDEAD:
            return Acquired.OWNER_DEAD
        check(code)
        return Acquired.CLEAN

    def release(self, index: int, fence: Fence = Fence.THREAD) -> None:
        """Release a lock after a fence, in the thread that acquired it.

        Raises Again, after the node's `op_timeout`, if the lock is still held, because writes may
        still arrive at a paused node: release it again, and do not access the protected data in
        between. After HostDown, NotConnected and all other errors except InvalidArgument and EPERM
        the lock is released, and a write under it was lost."""
        check(self._call('release', index, fence))

    def consistent(self, index: int) -> None:
        """Declare the protected data repaired, after Acquired.OWNER_DEAD."""
        check(self._call('consistent', index))


class Lock:
    """One lock as a context manager.

    If the last holder failed, the ``with`` statement calls `repair` and marks the lock consistent.
    Without `repair`, or if it raises, the lock is released as not recoverable, for every node, and
    the statement raises OwnerDead (or the exception of `repair`): the block never runs with partly
    changed data. To repair the data outside a function, call LockTable.acquire.
    """

    def __init__(self, table: LockTable, index: int = 0, *, fence: Fence = Fence.THREAD,
                 repair: Optional[Callable[[], None]] = None):
        self.table, self.index, self.fence, self.repair = table, index, fence, repair

    def __enter__(self) -> Lock:
        if self.table.acquire(self.index) is Acquired.OWNER_DEAD:
            self._repair()
        return self

    def __exit__(self, *_) -> None:
        self.release()

    def release(self) -> None:
        """Release the lock; see LockTable.release."""
        self.table.release(self.index, self.fence)

    def _repair(self) -> None:
        try:
            if self.repair is None:
                raise error(-errno.EOWNERDEAD,
                            f'cannot enter lock {self.index} of {self.table.name}: its last holder failed '
                            'and may have left its data partly changed; pass a repair function, or use '
                            'LockTable.acquire')
            self.repair()
            self.table.consistent(self.index)
        except BaseException:
            self.release()
            raise


class Barrier(Object):
    """No participant passes before all have arrived; writes before the barrier are visible after it."""

    _kind = 'barrier'

    def __init__(self, node: Node, name: str, *, participants: Ranks = None):
        super().__init__(node, name, BarrierOptions(participants=Nodeset.of(participants)))

    def wait(self, timeout: Optional[float] = None) -> None:
        """Wait for all participants. After Timeout this node's arrival counts; call again to continue."""
        check(wait_in_slices(timeout, lambda ns: self._call('wait', ns)))
