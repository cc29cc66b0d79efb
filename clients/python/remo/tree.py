"""The ordered map. Contract: remo/tree.h."""
from __future__ import annotations

import ctypes
import errno
import threading
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import Any, Optional, Union

from . import _library
from ._library import (TREE_NEXT, TreeEntry, TreeItem, TreeKey, TreeOptions, TreeOwnerStats, TreeWrite,
                       library)
from .errors import Error, check, error
from .mapping import VALUE_BUFFER_BYTES, Map
from .node import Bytes, Node, Nodeset, Ranks, source

# The flags of remo/tree.h.
_DESCENDING, _KEYS_ONLY, _FROM_EXCLUDED, _TO_INCLUDED = 1, 2, 4, 8

# The kinds of writes of remo/tree.h, by the names of the methods.
_KINDS = {'insert': 0, 'replace': 1, 'put': 2, 'delete': 3, 'compare_put': 4}

Snapshot = Sequence[int]


class Tree(Map):
    """A map of bytes to bytes, in the order of keys, divided by ranges over its owners. A str is its
    UTF-8 encoding; keys and values are returned as bytes.

    Each call is atomic for its key, except where a method states otherwise. Iteration is in the order of
    keys; ``reversed()`` begins at the last key. An iteration reads the tree in pages, each as of one
    instant; with a snapshot, all pages are as of the snapshot. A key that is present from the first step
    to the last is returned exactly once. ``tree.range(...)`` and ``tree[from:to]`` are views of a range
    of keys.

    ``boundaries`` are the first keys of all owners except the first. Trees compare equal only to
    themselves.
    """

    _kind = 'tree'
    _put_verb, _delete_verb = 'upsert', 'remove'

    def __init__(self, node: Node, name: str, *, boundaries: Optional[Sequence[Bytes]] = None,
                 owners: Ranks = None, nodes: int = 0, node_bytes: int = 0, key_bytes_max: int = 0,
                 value_bytes_max: int = 0, retain: int = 0, participants: Ranks = None):
        options = TreeOptions(participants=Nodeset.of(participants), owners=Nodeset.of(owners), nodes=nodes,
                              node_bytes=node_bytes, key_bytes_max=key_bytes_max,
                              value_bytes_max=value_bytes_max, retain=retain)
        if boundaries is not None:
            count = len(boundaries)
            expected = len(list(owners)) if owners is not None else \
                len(list(participants)) if participants is not None else node.size
            if count != expected - 1:
                raise _invalid(f'cannot open tree {name} with {count} boundaries: {expected} owners need '
                               f'{expected - 1}; pass the first key of each owner except the first')
            keys = [_key_of(boundary) for boundary in boundaries]
            options.boundaries = (TreeKey * max(count, 1))(*[key for key, _ in keys])
        super().__init__(node, name, options)

    def range(self, start: Optional[Bytes] = None, stop: Optional[Bytes] = None, *, reverse: bool = False,
              includes_start: bool = True, includes_stop: bool = False, limit: Optional[int] = None,
              snapshot: Optional[Snapshot] = None) -> TreeRange:
        """Return a view of the keys from `start` to `stop`. None: no limit. With `reverse`, iteration is
        from the last key of the range to the first."""
        if limit is not None and limit < 0:
            raise _invalid(f'cannot make a range of tree {self.name} with limit {limit}; use 0 or more')
        flags = _DESCENDING * reverse | _FROM_EXCLUDED * (not includes_start) | _TO_INCLUDED * includes_stop
        return TreeRange(self, start, stop, flags, limit, self._words(snapshot))

    def items(self) -> ItemsView:
        """Return a view of all keys with their values. They are read together, so a removed key raises no
        KeyError."""
        return _Items(self)

    def values(self) -> ValuesView:
        """Return a view of all values."""
        return _Values(self)

    def snapshot(self) -> tuple[int, ...]:
        """Return the versions of all owners at one instant, for ``range`` and ``get_at``. They are plain
        data, which other nodes can use too."""
        words = (ctypes.c_uint64 * self.owners)()
        check(self._call('snapshot', words))
        return tuple(words)

    def get_at(self, snapshot: Snapshot, key: Bytes, default: Any = None) -> Any:
        """Return the value of a key as of a snapshot, or `default`."""
        return self._get('get_at', key, default, self._words(snapshot))

    def get_many(self, keys: Iterable[Bytes], default: Any = None) -> list[Any]:
        """Return the values of several keys, `default` for an absent key. Each key is read as of an instant
        of its own; the leaves of several keys are read at the same time."""
        kept = [_key_of(key) for key in keys]
        if not kept:
            return []
        room = ctypes.create_string_buffer(len(kept) * VALUE_BUFFER_BYTES)
        first = ctypes.addressof(room)
        items = (TreeItem * len(kept))(*[
            TreeItem(key=key, value=first + i * VALUE_BUFFER_BYTES, value_cap=VALUE_BUFFER_BYTES)
            for i, (key, _) in enumerate(kept)])
        check(self._call('get_many', items, len(items)))
        values = []
        for item in items:
            if item.status == 0:
                values.append(ctypes.string_at(item.value, item.value_bytes))
            elif item.status == -errno.EMSGSIZE:
                values.append(self.get(ctypes.string_at(item.key.data, item.key.bytes), default))
            else:
                values.append(default)
        return values

    def apply(self, *writes: Sequence[Any]) -> Optional[int]:
        """Make all writes at one instant, or none. All keys have the same owner. A write is a tuple of the
        name of a method and its arguments: ('insert', key, value), ('replace', key, value), ('put', key,
        value), ('delete', key) or ('compare_put', key, expected, value). Return None, or the index of the
        first write that found its key present, absent, or with another value than expected: then nothing has
        changed."""
        kept = [_write_of(write) for write in writes]
        all_writes = (TreeWrite * max(len(kept), 1))(*[write for write, _ in kept])
        failed = ctypes.c_uint32()
        code = self._call('apply', all_writes, len(kept), failed)
        if code in (-errno.EEXIST, -errno.ENOENT, -errno.ESTALE):
            return failed.value
        check(code)
        return None

    def load(self, entries: Union[Mapping, Iterable[tuple[Bytes, Bytes]]], *, fill_percent: int = 0) -> int:
        """Load sorted data: pairs of a key and a value in ascending order of keys, which this node owns and
        which are absent. Return their number. It is many times faster than inserts. Leaves are filled to
        `fill_percent`, 50 to 100; 0: 90. Not atomic: after an exception, also of the iteration, the entries
        before it are loaded."""
        rest = iter(entries.items() if isinstance(entries, Mapping) else entries)
        kept: list[Any] = []  # the buffers of the last entry
        raised: list[BaseException] = []

        def take(_ctx: Any, ret_entry: Any) -> int:
            try:
                key, value = next(rest)
                pair = _key_of(key), _key_of(value)
            except StopIteration:
                return 0
            except BaseException as exception:  # it must not leave through the frames of the C library
                raised.append(exception)
                return -errno.ECANCELED
            kept[:] = pair
            ret_entry[0].key, ret_entry[0].value = pair[0][0], pair[1][0]
            return 1

        count = ctypes.c_uint64()
        code = self._call('load', TREE_NEXT(take), None, fill_percent, count)
        if raised:
            raise raised[0]
        check(code)
        return count.value

    @property
    def owners(self) -> int:
        """The number of owners."""
        return self._call('owners')

    def owner(self, key: Bytes) -> int:
        """Return the rank of the owner of a key, whether the key is present or not."""
        return self._call('owner', *source(key))

    def stats(self) -> dict[str, int]:
        """Return the state of this node's keys: nodes, nodes_max, levels and version."""
        stats = TreeOwnerStats()
        check(self._call('stats', stats))
        return {name: getattr(stats, name) for name, _ in TreeOwnerStats._fields_}

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, slice):
            return super().__getitem__(key)
        if key.step not in (None, 1):
            raise _invalid(f'cannot slice tree {self.name} with step {key.step}; leave it out, or use range')
        return self.range(key.start, key.stop)

    def __delitem__(self, key: Any) -> None:
        """Remove a key (KeyError if it is absent), or the keys of a slice."""
        if isinstance(key, slice):
            self[key].delete()
        else:
            super().__delitem__(key)

    def clear(self) -> None:
        """Remove all keys. Keys that are inserted meanwhile may stay."""
        self.range().delete()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.range())

    def __reversed__(self) -> Iterator[bytes]:
        return iter(self.range(reverse=True))

    def __len__(self) -> int:
        """Count the keys as of one instant. It costs as much as an iteration, and ``list(tree)`` calls
        it: prefer ``list(tree.range())``."""
        return self.range().count()

    def __bool__(self) -> bool:
        return self.range(limit=1).count() > 0

    def _entries(self) -> Iterator[tuple[bytes, bytes]]:
        return self.range()._entries()

    def _words(self, snapshot: Optional[Snapshot]) -> Any:
        if snapshot is None:
            return None
        if len(snapshot) != self.owners:
            raise _invalid(f'cannot read tree {self.name} as of a snapshot of {len(snapshot)} words: it has '
                           f'{self.owners} owners; use a snapshot of this tree')
        return (ctypes.c_uint64 * len(snapshot))(*snapshot)


class TreeRange:
    """A view of a range of keys of a tree. Iteration returns the keys. items() and values() are views of
    the entries and values. The length of a view costs as much as an iteration."""

    def __init__(self, tree: Tree, start: Optional[Bytes], stop: Optional[Bytes], flags: int,
                 limit: Optional[int], snapshot: Any):
        self._tree, self._start, self._stop, self._flags = tree, start, stop, flags
        self._limit, self._snapshot = limit, snapshot

    def count(self) -> int:
        """Return the number of entries as of one instant. It costs as much as an iteration."""
        if self._limit == 0:
            return 0
        count = ctypes.c_uint64()
        (start, _keep_start), (stop, _keep_stop) = _key_of(self._start), _key_of(self._stop)
        check(self._tree._call('count', _range(start, stop, self._flags, self._limit, self._snapshot), count))
        return count.value

    def delete(self) -> int:
        """Remove the keys, `limit` at most, and return their number. Not atomic: after an exception, some
        keys may be removed. A range with `reverse` or a snapshot cannot be removed."""
        if self._limit == 0:
            return 0
        count = ctypes.c_uint64()
        (start, _keep_start), (stop, _keep_stop) = _key_of(self._start), _key_of(self._stop)
        check(self._tree._call('remove_range',
                               _range(start, stop, self._flags, self._limit, self._snapshot), count))
        return count.value

    def keys(self) -> KeysView:
        """Return a view of the keys."""
        return _RangeKeys(self)

    def items(self) -> ItemsView:
        """Return a view of the keys with their values."""
        return _RangeItems(self)

    def values(self) -> ValuesView:
        """Return a view of the values."""
        return _RangeValues(self)

    def __iter__(self) -> Iterator[bytes]:
        return map(lambda entry: entry[0], self._entries(_KEYS_ONLY))

    def _entries(self, flags: int = 0) -> Iterator[tuple[bytes, bytes]]:
        return _Entries(self._tree, self._start, self._stop, self._flags | flags, self._limit, self._snapshot)


class _Entries(Iterator):
    """An iterator over entries: a cursor of the library. After an error it continues after the last entry, or
    after the keys of a node that has failed."""

    def __init__(self, tree: Tree, start: Optional[Bytes], stop: Optional[Bytes], flags: int,
                 limit: Optional[int], snapshot: Any):
        self._tree, self._cursor, self._entry = tree, ctypes.c_void_p(), TreeEntry()
        self._is_empty, self._lock = limit == 0, threading.Lock()  # threads may share the iterator
        (first, _keep_first), (last, _keep_last) = _key_of(start), _key_of(stop)
        check(tree._call('cursor_open', _range(first, last, flags, limit, snapshot), 0, self._cursor))

    def __del__(self) -> None:
        library.remo_tree_cursor_close(self._cursor)

    def __next__(self) -> tuple[bytes, bytes]:
        _ = self._tree.pointer  # an exception if the tree is closed
        with self._lock:
            if self._is_empty or check(library.remo_tree_cursor_next(self._cursor, self._entry)) == 0:
                raise StopIteration
            key, value = self._entry.key, self._entry.value
            return ctypes.string_at(key.data, key.bytes), ctypes.string_at(value.data, value.bytes)


class _Items(ItemsView):
    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return self._mapping._entries()


class _Values(ValuesView):
    def __iter__(self) -> Iterator[bytes]:
        return map(lambda entry: entry[1], self._mapping._entries())

    def __contains__(self, value: Any) -> bool:
        return any(value == each for each in self)


class _RangeView:
    """A view of a range: its length and its members are those of an iteration."""

    _mapping: Any

    def __len__(self) -> int:
        return self._mapping.count()

    def __contains__(self, member: Any) -> bool:
        return any(member == each for each in self)  # type: ignore[attr-defined]


class _RangeKeys(_RangeView, KeysView):
    pass


class _RangeItems(_RangeView, _Items):
    pass


class _RangeValues(_RangeView, _Values):
    pass


def _invalid(sentence: str) -> Error:
    return error(-errno.EINVAL, sentence)


def _key_of(key: Optional[Bytes]) -> tuple[TreeKey, Any]:
    """Return a key as a C structure, and the buffer of its bytes, which the caller must hold."""
    if key is None:
        return TreeKey(None, 0), None
    data = key.encode() if isinstance(key, str) else bytes(key)
    kept = ctypes.create_string_buffer(data, len(data) + 1)
    return TreeKey(ctypes.addressof(kept), len(data)), kept


def _write_of(write: Sequence[Any]) -> tuple[TreeWrite, Any]:
    """Return a write as a C structure, and the buffers of its bytes."""
    name, *arguments = write
    counts = {'delete': 1, 'compare_put': 3}
    if name not in _KINDS or len(arguments) != counts.get(name, 2):
        raise _invalid(f'cannot apply the write {name!r} with {len(arguments)} arguments; use one of '
                       f'{", ".join(_KINDS)} with the arguments of the method of this name')
    kept = [_key_of(argument) for argument in arguments]
    parts = [part for part, _ in kept]
    result = TreeWrite(kind=_KINDS[name], key=parts[0])
    if len(parts) == 3:
        result.expected = parts[1]
    if len(parts) > 1:
        result.value = parts[-1]
    return result, kept


def _range(start: TreeKey, stop: TreeKey, flags: int, limit: Optional[int], snapshot: Any) -> Any:
    result = _library.TreeRange(to=stop, limit=limit or 0, flags=flags)
    setattr(result, 'from', start)
    if snapshot is not None:
        result.snapshot = ctypes.cast(snapshot, ctypes.POINTER(ctypes.c_uint64))
    return result
