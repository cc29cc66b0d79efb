"""Broadcast, reductions and gathers. Contract: remo/collective.h."""
from __future__ import annotations

import array
import ctypes
import enum
import errno
from typing import Any, Optional, Union

from ._library import CollectiveOptions
from .errors import check, error
from .node import Bytes, Node, Nodeset, Object, Ranks, source, wait_in_slices

Numbers = Any  # a number, or a buffer of numbers of 8 bytes (array.array, memoryview, a NumPy array)


class Reduction(enum.IntEnum):
    """How numbers are combined. Sums of integers wrap; AND, OR and XOR are for integers only."""
    SUM = 0
    MIN = 1
    MAX = 2
    AND = 3
    OR = 4
    XOR = 5


class Number(enum.IntEnum):
    """The elements of a reduction."""
    U64 = 0
    I64 = 1
    DOUBLE = 2


_FORMATS = {'Q': Number.U64, 'L': Number.U64, 'q': Number.I64, 'l': Number.I64, 'd': Number.DOUBLE}


class Collective(Object):
    """Calls that all participants make in the same order, with the same root, sizes and types, as
    in MPI.

    Each call is a barrier. After Timeout, or an exception such as KeyboardInterrupt, the call is
    unfinished: repeat it with the same arguments. After HostDown, NotConnected and EPROTO close the
    object.

    Nodes read from each other: wait for all participants with a Barrier before the object or its
    node is closed.
    """

    _kind = 'collective'

    def __init__(self, node: Node, name: str, *, bytes_max: int = 0, participants: Ranks = None):
        super().__init__(node, name,
                         CollectiveOptions(participants=Nodeset.of(participants), bytes_max=bytes_max))

    def broadcast(self, data: Union[Bytes, memoryview], root: int = 0,
                  timeout: Optional[float] = None) -> None:
        """Copy the bytes of `data` of the root to `data` of every other participant, which is a
        writable buffer of the same size (bytearray, array.array, memoryview, a NumPy array)."""
        if self.node.rank == root:
            place, size = source(data)
        else:
            view = memoryview(data).cast('B')
            size = view.nbytes
            place = (ctypes.c_char * size).from_buffer(view) if size else None
        self._repeat(timeout, 'broadcast', root, place, size)

    def reduce(self, numbers: Numbers, reduction: Reduction = Reduction.SUM, root: int = 0,
               timeout: Optional[float] = None) -> Any:
        """Combine the numbers of all participants, element by element. Return the result at the
        root, None elsewhere. An int counts as 8 bytes with a sign, a float as double; the result of
        a buffer is an array.array."""
        send, count, number, receive = self._elements(numbers)
        self._repeat(timeout, 'reduce', root, send, receive, count, number, reduction)
        return self._result(numbers, number, receive) if self.node.rank == root else None

    def all_reduce(self, numbers: Numbers, reduction: Reduction = Reduction.SUM,
                   timeout: Optional[float] = None) -> Any:
        """As reduce, with the result at every participant."""
        send, count, number, receive = self._elements(numbers)
        self._repeat(timeout, 'all_reduce', send, receive, count, number, reduction)
        return self._result(numbers, number, receive)

    def gather(self, data: Bytes, root: int = 0, timeout: Optional[float] = None) -> Optional[list[bytes]]:
        """Return the data of all participants, in the order of the ranks, at the root, None
        elsewhere. All have the same size."""
        send, size = source(data)
        receive = self._receive_buffer(size) if self.node.rank == root else None
        self._repeat(timeout, 'gather', root, send, receive, size)
        return self._split(receive, size) if receive is not None else None

    def all_gather(self, data: Bytes, timeout: Optional[float] = None) -> list[bytes]:
        """As gather, with the result at every participant."""
        send, size = source(data)
        receive = self._receive_buffer(size)
        self._repeat(timeout, 'all_gather', send, receive, size)
        return self._split(receive, size)

    def _repeat(self, timeout: Optional[float], verb: str, *arguments: Any) -> None:
        """Make a call in slices of time: a repeated call continues after a timeout."""
        check(wait_in_slices(timeout, lambda ns: self._call(verb, *arguments, ns)))

    def _receive_buffer(self, size_bytes: int) -> ctypes.Array:
        return ctypes.create_string_buffer(size_bytes * len(self.participants))

    def _split(self, receive: ctypes.Array, size_bytes: int) -> list[bytes]:
        return [receive.raw[rank * size_bytes:(rank + 1) * size_bytes]
                for rank in range(len(self.participants))]

    def _elements(self, numbers: Numbers) -> tuple[Any, int, Number, ctypes.Array]:
        """Return pointer, count and type of the numbers, and a buffer for the result."""
        if isinstance(numbers, (int, float)):
            numbers = array.array('q' if isinstance(numbers, int) else 'd', [numbers])
        view = memoryview(numbers)
        number = _FORMATS.get(view.format)
        if number is None or view.itemsize != 8:
            raise error(-errno.EINVAL,
                        f'cannot reduce elements of format {view.format} in {self.name}: they must be '
                        "integers or doubles of 8 bytes; use array.array('q', ...), 'Q' or 'd'")
        send, size = source(view)
        return send, size // 8, number, ctypes.create_string_buffer(size)

    @staticmethod
    def _result(numbers: Numbers, number: Number, receive: ctypes.Array) -> Any:
        result = array.array({Number.U64: 'Q', Number.I64: 'q', Number.DOUBLE: 'd'}[number], receive.raw)
        return result[0] if isinstance(numbers, (int, float)) else result
