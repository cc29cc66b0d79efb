"""The distributed map. Contract: remo/kv.h."""
from __future__ import annotations

import ctypes
import errno
from collections.abc import ItemsView, Iterator, ValuesView
from typing import Any

from ._library import KVCursor, KVOptions
from .errors import check
from .mapping import VALUE_BUFFER_BYTES, Map
from .node import Bytes, Node, Nodeset, Ranks, source

# The initial size of the buffer for a key; a longer one is read again.
_KEY_BUFFER_BYTES = 64


class KV(Map):
    """A distributed hash map of bytes to bytes. A str is its UTF-8 encoding; keys and values are
    returned as bytes.

    Each call is atomic for its key, except where a method states otherwise, and ends after the
    node's `op_timeout` at the latest. Maps compare equal only to themselves.

    Iteration reads the map while other nodes change it. A key that is present from the first step
    to the last is returned exactly once. A key that is inserted or deleted meanwhile may be
    returned or not, and once for each insert. The order of keys has no meaning, and differs between
    nodes. ``items()`` and ``values()`` read keys and values together, so a deleted key raises no
    KeyError. A key on a node that has failed, or has closed the map, raises HostDown or
    NotConnected, once for each such key; the next call of ``next()`` on the same iterator
    continues.
    """

    _kind = 'kv'

    def __init__(self, node: Node, name: str, capacity: int = 0, *, key_bytes_max: int = 0,
                 value_bytes_max: int = 0, participants: Ranks = None):
        super().__init__(node, name, KVOptions(participants=Nodeset.of(participants), capacity=capacity,
                                               key_bytes_max=key_bytes_max, value_bytes_max=value_bytes_max))

    def fetch_add(self, key: Bytes, delta: int = 1) -> int:
        """Add to a value of 8 bytes in the byte order of the machine, modulo 2**64; return the
        value before. An absent key raises KeyError: insert it first with its initial value."""
        old = ctypes.c_uint64()
        if not self._unless(errno.ENOENT, 'fetch_add', *source(key), delta % 2**64, old):
            raise KeyError(key)
        return old.value

    def items(self) -> ItemsView:
        """Return a view of all keys with their values."""
        return _Items(self)

    def values(self) -> ValuesView:
        """Return a view of all values."""
        return _Values(self)

    def __iter__(self) -> Iterator[bytes]:
        return _Entries(self, has_values=False)

    def __len__(self) -> int:
        """Return the number of keys in the index of this node, without network operations. It is
        exact while no node inserts or deletes; keys on failed nodes count, although they cannot be
        read."""
        return self._call('count')


class _Entries(Iterator):
    """An iterator over the keys of a map, or over pairs of key and value. It continues after an error."""

    def __init__(self, kv: KV, *, has_values: bool):
        self._kv, self._cursor, self._has_values = kv, KVCursor(), has_values
        self._key = ctypes.create_string_buffer(_KEY_BUFFER_BYTES)
        self._value = ctypes.create_string_buffer(VALUE_BUFFER_BYTES if has_values else 0)

    def __next__(self) -> Any:
        key_bytes, value_bytes = ctypes.c_size_t(), ctypes.c_size_t()
        while True:
            code = self._kv._call('next', self._cursor, self._key, len(self._key), key_bytes,
                                  self._value if self._has_values else None, len(self._value), value_bytes)
            if code != -errno.EMSGSIZE or not self._enlarge(key_bytes.value, value_bytes.value):
                break
        if code == -errno.ENOENT:
            raise StopIteration
        check(code)
        key = ctypes.string_at(self._key, key_bytes.value)
        return (key, ctypes.string_at(self._value, value_bytes.value)) if self._has_values else key

    def _enlarge(self, key_bytes: int, value_bytes: int) -> bool:
        """Enlarge the buffers for an entry of these lengths. Return False if they were large enough."""
        is_key_long, is_value_long = key_bytes > len(self._key), value_bytes > len(self._value)
        if is_key_long:
            self._key = ctypes.create_string_buffer(key_bytes)
        if is_value_long:
            self._value = ctypes.create_string_buffer(value_bytes)
        return is_key_long or is_value_long


class _Items(ItemsView):
    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return _Entries(self._mapping, has_values=True)


class _Values(ValuesView):
    def __iter__(self) -> Iterator[bytes]:
        return map(lambda entry: entry[1], _Entries(self._mapping, has_values=True))

    def __contains__(self, value: Any) -> bool:
        return any(value == each for each in self)
