"""Nodes, and the base classes of all objects."""
from __future__ import annotations

import ctypes
import enum
import errno
import time
import weakref
from typing import Any, Callable, Iterable, Optional, Sequence, Union

from . import _library
from ._library import FOREVER, NODES_MAX, Address, Config, Nodeset, Stats, library
from .errors import check, error

Bytes = Union[bytes, bytearray, memoryview, str]
Ranks = Optional[Iterable[int]]

# A call that waits returns to Python this often, so that signals (Ctrl-C) are handled.
_SLICE_S = 0.5


def timeout_ns(timeout: Optional[float]) -> int:
    """Convert seconds, or None (no timeout), to the timeout of the library."""
    return FOREVER if timeout is None else max(0, min(int(timeout * 1e9), FOREVER - 1))


def wait_in_slices(timeout: Optional[float], call: Callable[[int], int]) -> int:
    """Repeat ``call(timeout_ns)`` while it times out and `timeout` seconds have not passed; return
    its code."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = _SLICE_S if deadline is None else deadline - time.monotonic()
        code = call(timeout_ns(min(left, _SLICE_S)))
        if code != -errno.ETIMEDOUT or left <= _SLICE_S and deadline is not None:
            return code


def source(data: Bytes) -> tuple[Any, int]:
    """Return pointer and size of data that the library reads during a call."""
    if isinstance(data, str):
        data = data.encode()
    if not isinstance(data, bytes):
        view = memoryview(data).cast('B') if memoryview(data).c_contiguous else memoryview(bytes(data))
        if view.readonly or not view.nbytes:
            data = view.tobytes()
        else:
            return (ctypes.c_char * view.nbytes).from_buffer(view), view.nbytes
    return data, len(data)


class Fence(enum.IntEnum):
    """Which operations a fence orders: none, those to one peer, of this thread, of this node."""
    NONE = 0
    PAIR = 1
    THREAD = 2
    GLOBAL = 3


class Peer(enum.IntEnum):
    """The state of a node of the job."""
    JOINING = 0
    UP = 1
    LEFT = 2
    DEAD = 3


class Closing:
    """A resource that a ``with`` block closes."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.close()


# The callbacks of all open nodes. The library calls them until remo_node_close returns, also if the program
# has dropped its last reference to the node.
_callbacks: list[Any] = []


class Node(Closing):
    """A member of the job.

    Without arguments the job is that of ``remo run``, mpirun or srun; without one of them, a job of
    one node. Closing the node closes its objects in reverse order, and cancels its acks.

    ``on_peer(rank, state)`` is called for each membership change: Peer.UP, Peer.LEFT or Peer.DEAD.
    It runs on a thread of the library, one call at a time; the first calls precede the end of
    Node(). It must neither wait nor close an object; its exceptions go to ``sys.unraisablehook``.
    """

    def __init__(self, *, fabric: Optional[str] = None, provider: Optional[str] = None,
                 bind_address: Optional[str] = None, rank: int = 0, addresses: Optional[Sequence[str]] = None,
                 hosts_file: Optional[str] = None, size: int = 0, job: Optional[str] = None,
                 key_file: Optional[str] = None, memory_dir: Optional[str] = None, arena_bytes: int = 0,
                 join_timeout: float = 0, op_timeout: float = 0, threads_max: int = 0,
                 on_peer: Optional[Callable[[int, Peer], None]] = None):
        config = Config(rank=rank, size=size or len(addresses or ()), arena_bytes=arena_bytes,
                        join_timeout_ns=timeout_ns(join_timeout), op_timeout_ns=timeout_ns(op_timeout),
                        threads_max=threads_max)
        for name, text in (('fabric', fabric), ('provider', provider), ('bind_address', bind_address),
                           ('hosts_file', hosts_file), ('job', job), ('key_file', key_file),
                           ('memory_dir', memory_dir)):
            setattr(config, name, text.encode() if text is not None else None)
        if addresses:
            config.addresses = (ctypes.c_char_p * len(addresses))(*[a.encode() for a in addresses])
        self._pointer: Optional[int] = None
        self._objects: list[Handle] = []
        self._acks: weakref.WeakSet = weakref.WeakSet()  # to which the library may still write
        self._callback: Any = None
        if on_peer is not None:
            self._callback = _library.ON_PEER(lambda _, rank, state: on_peer(rank, Peer(state)))
            config.on_peer = ctypes.cast(self._callback, ctypes.c_void_p)
        opened = ctypes.c_void_p()
        check(library.remo_node_open(config, opened))
        self._pointer = opened.value
        if on_peer is not None:
            _callbacks.append(self._callback)

    def close(self) -> None:
        """Close the objects of the node, and leave the job. No other thread may be in a call."""
        for ack in list(self._acks):
            ack.cancel()
        while self._objects:
            self._objects[-1].close()
        if self._pointer:
            library.remo_node_close(self._pointer)
            self._pointer = None
            _callbacks[:] = [each for each in _callbacks if each is not self._callback]

    @property
    def pointer(self) -> int:
        """The ``struct remo_node *``."""
        if self._pointer is None:
            raise error(-errno.EINVAL, 'cannot use a closed node; open another')
        return self._pointer

    @property
    def rank(self) -> int:
        return library.remo_node_rank(self.pointer)

    @property
    def size(self) -> int:
        return library.remo_node_size(self.pointer)

    @property
    def fabric(self) -> str:
        return library.remo_node_fabric(self.pointer).decode()

    def peer(self, rank: int) -> Peer:
        """Return the state of a node of the job."""
        return Peer(library.remo_node_peer(self.pointer, rank))

    def fence(self, scope: Fence = Fence.THREAD, peer: int = 0) -> None:
        """Order operations: those before the fence are placed before those after it."""
        check(library.remo_fence(self.pointer, scope, peer))

    def read(self, address: int, size_bytes: int) -> bytes:
        """Read bytes at an address (see Heap)."""
        into = ctypes.create_string_buffer(size_bytes)
        check(library.remo_read(self.pointer, Address(address), into, size_bytes, None))
        return into.raw

    def write(self, address: int, data: Bytes) -> None:
        """Write bytes at an address. A fence orders the write and reports its failure."""
        check(library.remo_write(self.pointer, Address(address), *source(data), None))

    def fetch_add(self, address: int, addend: int = 1) -> int:
        """Add to the word of 8 bytes at an address, modulo 2**64; return its old value."""
        old = ctypes.c_uint64()
        check(library.remo_fetch_add(self.pointer, Address(address), addend, old, None))
        return old.value

    def compare_swap(self, address: int, expected: int, desired: int) -> int:
        """Replace the word of 8 bytes at an address if it is `expected`; return its old value."""
        old = ctypes.c_uint64()
        check(library.remo_compare_swap(self.pointer, Address(address), expected, desired, old, None))
        return old.value

    def wait_connected(self, timeout: Optional[float] = None) -> None:
        """Wait until all objects of this node are connected to all their participants."""
        root = library.remo_node_root(self.pointer)
        check(wait_in_slices(timeout, lambda ns: library.remo_channel_wait(root, ns)))

    def stats(self) -> dict[str, int]:
        """Return the counts of network operations since the start."""
        stats = Stats()
        library.remo_node_stats(self.pointer, stats)
        return {name: getattr(stats, name) for name, _ in Stats._fields_}


class Handle(Closing):
    """The base of objects and events: a node, and a C object that is opened and closed."""

    _kind = ''  # the name in the functions of the library

    def __init__(self, node: Node, name: str, *arguments: Any):
        """Open the object: call its open function with these arguments."""
        self._pointer: Optional[int] = None
        self.node = node
        self.name = name
        opened = ctypes.c_void_p()
        check(self._function('open')(*arguments, opened))
        self._pointer = opened.value
        node._objects.append(self)

    def _function(self, verb: str) -> Callable[..., int]:
        return getattr(library, f'remo_{self._kind}_{verb}')

    def _call(self, verb: str, *arguments: Any) -> int:
        """Call a function of the object; return its code."""
        return self._function(verb)(self.pointer, *arguments)

    @property
    def pointer(self) -> int:
        """The C object."""
        if self._pointer is None:
            raise error(-errno.EINVAL, f'cannot use {self.name}: it is closed; open it again')
        return self._pointer

    def close(self) -> None:
        """Close the object. A second close has no effect."""
        if self._pointer is not None:
            pointer, self._pointer = self._pointer, None
            self.node._objects.remove(self)
            self._function('close')(pointer)


class Object(Handle):
    """The base of all objects: a name and participants."""

    def __init__(self, node: Node, name: str, *arguments: Any):
        super().__init__(node, name, library.remo_node_root(node.pointer), name.encode(), *arguments)

    @property
    def participants(self) -> list[int]:
        """The ranks of the nodes that open the object."""
        members = library.remo_channel_participants(self._call('channel')).contents
        return [rank for rank in range(NODES_MAX) if members.word[rank // 64] >> rank % 64 & 1]

    def wait_connected(self, timeout: Optional[float] = None) -> None:
        """Wait until every participant has opened the object."""
        channel = self._call('channel')
        check(wait_in_slices(timeout, lambda ns: library.remo_channel_wait(channel, ns)))

    def _exactly(self, data: Bytes, size_bytes: int) -> Any:
        """Return the pointer to data that must have this size."""
        pointer, size = source(data)
        if size != size_bytes:
            raise error(-errno.EINVAL,
                        f'cannot store {size} bytes in {self.name}: its values have {size_bytes} bytes; '
                        'pass that many')
        return pointer


__all__ = ['Bytes', 'Closing', 'Fence', 'Handle', 'Node', 'Nodeset', 'Object', 'Peer', 'Ranks', 'source',
           'timeout_ns', 'wait_in_slices']
