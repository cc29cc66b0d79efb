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
    OWNER_DEAD = 1  # the last holder failed: repair what the lock protects, then call consistent()


class LockTable(Object):
    """Locks that nodes and threads acquire by index. ``with table[3]:`` holds lock 3."""

    _kind = 'lock'

    def __init__(self, node: Node, name: str, count: int = 1, *, homes: Ranks = None, participants: Ranks = None):
        super().__init__(node, name, LockOptions(participants=Nodeset.of(participants), count=count,
                                                 homes=Nodeset.of(homes)))
        self.count = count

    def __getitem__(self, index: int) -> Lock:
        return Lock(self, index)

    def acquire(self, index: int, timeout: Optional[float] = None) -> Acquired:
        """Acquire a lock. A failed holder is a result, a deadline that passes raises Timeout.

        Without a timeout the call ends with the lock or the failure of its home, and Ctrl-C waits as long:
        a wait in parts would lose its place in the queue."""
        code = self._call('acquire', index, timeout_ns(timeout))
        if code == -errno.EOWNERDEAD:
            return Acquired.OWNER_DEAD
        check(code)
        return Acquired.CLEAN

    def release(self, index: int, fence: Fence = Fence.THREAD) -> None:
        """Release a lock after a fence. By the thread that acquired it.

        Raises Again, after the node's `op_timeout`, if the lock is still held, because writes may still arrive at a
        paused node: release it again, and do not use what it protects in between. After HostDown, NotConnected and
        every other error but InvalidArgument and EPERM the lock is released, and a write under it was lost."""
        check(self._call('release', index, fence))

    def consistent(self, index: int) -> None:
        """After Acquired.OWNER_DEAD: what the lock protects is in order again."""
        check(self._call('consistent', index))


class Lock:
    """One lock as a context manager.

    If the last holder failed, the ``with`` statement calls `repair` and marks the lock consistent. Without
    `repair`, or if it raises, the lock is released as not recoverable, for every node, and the statement raises
    OwnerDead (or the exception of `repair`): the block does not run on data that may be half changed. A program
    that can repair, but not inside a function, calls LockTable.acquire.
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
                raise error(-errno.EOWNERDEAD, f'the last holder of lock {self.index} of {self.table.name} failed and '
                            'may have left its data half changed; give the lock a repair function, or use '
                            'LockTable.acquire')
            self.repair()
            self.table.consistent(self.index)
        except BaseException:
            self.release()
            raise


class Barrier(Object):
    """No participant leaves before all have come; what was written before is visible after."""

    _kind = 'barrier'

    def __init__(self, node: Node, name: str, *, participants: Ranks = None):
        super().__init__(node, name, BarrierOptions(participants=Nodeset.of(participants)))

    def wait(self, timeout: Optional[float] = None) -> None:
        """Wait for all participants. After a Timeout this node's arrival counts: call again to go on."""
        check(wait_in_slices(timeout, lambda ns: self._call('wait', ns)))
