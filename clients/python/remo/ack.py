"""Operations in flight. Contract: remo/ack.h."""
from __future__ import annotations

import ctypes
import errno
from typing import Any, Optional, Sequence

from . import _library
from ._library import library
from .errors import check
from .node import Node, wait_in_slices


class Ack:
    """The operations that were started with ``ack=``. Several operations may share one ack.

    Such a call returns at once; a buffer that it fills has its contents when the ack is complete.
    One thread starts operations, and one thread at a time tests or waits. An ack that is dropped,
    and each ack of a node that closes, is cancelled.
    """

    def __init__(self, node: Node):
        self._ack = _library.Ack()
        self._kept: list[Any] = []  # buffers that the operations fill
        node._acks.add(self)

    def test(self) -> bool:
        """Return True if no operation is in flight. Never waits. Raises the error of the first one
        that failed."""
        code = library.remo_ack_test(self._ack)
        if code == -errno.EINPROGRESS:
            return False
        self._kept.clear()
        check(code)
        return True

    def wait(self, timeout: Optional[float] = None) -> None:
        """Wait until no operation is in flight. Raises Timeout, or the error of the first one that failed."""
        if not self.test():
            wait_any([self], timeout)
            self.test()

    def cancel(self) -> None:
        """Stop observing the operations, which continue: their buffers are not written any more."""
        library.remo_ack_cancel(self._ack)
        self._kept.clear()

    def __del__(self) -> None:
        library.remo_ack_cancel(self._ack)


def wait_any(acks: Sequence[Optional[Ack]], timeout: Optional[float] = None) -> int:
    """Wait until one of these acks is complete; return its index. ``acks[index].test()`` raises the
    error of a failed operation. Entries that are None are skipped. Raises Timeout."""
    pointers = (ctypes.POINTER(_library.Ack) * len(acks))(
        *[ctypes.pointer(ack._ack) if ack is not None else None for ack in acks])
    index = ctypes.c_uint32()
    check(wait_in_slices(timeout, lambda ns: library.remo_ack_wait_any(pointers, len(acks), ns, index)))
    return index.value


def start(ack: Optional[Ack], *kept: Any) -> Optional[_library.Ack]:
    """Return the C structure of the ack, which keeps the buffers of the operation."""
    if ack is None:
        return None
    ack._kept.extend(kept)
    return ack._ack
