"""The base class of the maps: methods of a dict that they have in common."""
from __future__ import annotations

import ctypes
import errno
from collections.abc import MutableMapping
from typing import Any

from .errors import check
from .node import Bytes, Object, source

# The initial size of the buffer for a value; a longer one is read again.
VALUE_BUFFER_BYTES = 1024


class Map(Object, MutableMapping):
    """A map of bytes to bytes. A subclass implements iteration, and names the C functions that put and
    delete a key."""

    _put_verb, _delete_verb = 'put', 'delete'

    # Two handles are equal only if they are the same: Mapping would compare the contents, and read each
    # key.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def get(self, key: Bytes, default: Any = None) -> Any:
        """Return the value of a key, or `default`."""
        return self._get('get', key, default)

    def put(self, key: Bytes, value: Bytes) -> None:
        """Insert a key, or replace its value: ``map[key] = value``."""
        check(self._call(self._put_verb, *source(key), *source(value)))

    def insert(self, key: Bytes, value: Bytes) -> bool:
        """Add a key. Return False if it is present."""
        return self._unless(errno.EEXIST, 'insert', *source(key), *source(value))

    def replace(self, key: Bytes, value: Bytes) -> bool:
        """Replace the value of a key. Return False if the key is absent."""
        return self._unless(errno.ENOENT, 'update', *source(key), *source(value))

    def compare_put(self, key: Bytes, expected: Bytes, value: Bytes) -> bool:
        """Replace the value of a key if it equals `expected`. Return False, without a change, if
        the value differs or the key is absent."""
        code = self._call('compare_put', *source(key), *source(expected), *source(value))
        return code not in (-errno.ESTALE, -errno.ENOENT) and check(code) == 0

    def delete(self, key: Bytes) -> bool:
        """Remove a key. Return False if it is absent."""
        return self._unless(errno.ENOENT, self._delete_verb, *source(key))

    _required = object()

    def pop(self, key: Bytes, default: Any = _required) -> Any:
        """Remove a key and return its value. If several callers remove the key, one of them gets
        the value. Not atomic: if another node changes the value at the same time, the value before
        the change may be returned."""
        value = self.get(key)
        if value is not None and self.delete(key):
            return value
        if default is self._required:
            raise KeyError(key)
        return default

    def popitem(self) -> tuple[bytes, bytes]:
        """Remove the first key of an iteration and return it with its value, like pop; KeyError if the
        map is empty."""
        for key, value in self.items():
            if self.delete(key):
                return key, value
        raise KeyError(f'cannot take an item: the map {self.name} is empty')

    def setdefault(self, key: Bytes, default: Bytes = b'') -> bytes:
        """Return the value of a key, which is inserted with `default` if it is absent."""
        while (value := self.get(key)) is None:
            if self.insert(key, default):
                return default.encode() if isinstance(default, str) else bytes(default)
        return value

    def clear(self) -> None:
        """Delete each key. Keys that are inserted meanwhile may stay."""
        for key in self:
            self.delete(key)

    def __getitem__(self, key: Bytes) -> bytes:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Bytes, value: Bytes) -> None:
        self.put(key, value)

    def __delitem__(self, key: Bytes) -> None:
        if not self.delete(key):
            raise KeyError(key)

    def __contains__(self, key: Any) -> bool:
        size, into = ctypes.c_size_t(), ctypes.create_string_buffer(1)
        code = self._call('get', *source(key), into, 0, size)  # without space for the value
        is_longer = code == -errno.EMSGSIZE and size.value > 0
        return is_longer or code != -errno.ENOENT and check(code) == 0

    def _get(self, verb: str, key: Bytes, default: Any, *arguments: Any) -> Any:
        """Call a function that reads a value, with `arguments` before the key."""
        name, room, size = source(key), VALUE_BUFFER_BYTES, ctypes.c_size_t()
        while True:
            into = ctypes.create_string_buffer(room)
            code = self._call(verb, *arguments, *name, into, room, size)
            if code == -errno.ENOENT:
                return default
            if code != -errno.EMSGSIZE or size.value <= room:
                check(code)
                return ctypes.string_at(into, size.value)
            room = size.value

    def _unless(self, refusal: int, verb: str, *arguments: Any) -> bool:
        """Call a function; return False if its code is `-refusal`."""
        code = self._call(verb, *arguments)
        return code != -refusal and check(code) == 0
