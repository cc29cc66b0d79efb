"""The shared library: its structures and functions, as the headers in include/remo declare them."""
from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

NODES_MAX = 256
FOREVER = 2**64 - 1

# Each incompatible version of the library has another name.
SONAMES = ('libremo.so.0.1',)


class Nodeset(ctypes.Structure):
    _c_name_ = 'remo_nodeset'
    _fields_ = [('word', c_uint64 * (NODES_MAX // 64))]

    @classmethod
    def of(cls, nodes) -> Nodeset:
        """Return the set of these ranks; None is the empty set, the default of every option."""
        result = cls()
        for node in nodes or ():
            if not 0 <= node < NODES_MAX:
                raise ValueError(f'there is no node {node}: ranks are 0 to {NODES_MAX - 1}')
            result.word[node // 64] |= 1 << node % 64
        return result


class Address(ctypes.Structure):
    _c_name_ = 'remo_addr'
    _fields_ = [('word', c_uint64)]


class Stats(ctypes.Structure):
    _c_name_ = 'remo_stats'
    _fields_ = [(name, c_uint64) for name in ('reads', 'writes', 'atomics', 'imms', 'bytes')]


class Config(ctypes.Structure):
    _c_name_ = 'remo_config'
    _fields_ = [
        ('fabric', c_char_p), ('provider', c_char_p), ('bind_address', c_char_p),
        ('rank', c_uint32), ('size', c_uint32),
        ('addresses', POINTER(c_char_p)), ('hosts_file', c_char_p), ('job', c_char_p),
        ('key_file', c_char_p), ('memory_dir', c_char_p),
        ('arena_bytes', c_uint64), ('segment_bytes', c_uint64),
        ('join_timeout_ns', c_uint64), ('op_timeout_ns', c_uint64),
        ('threads_max', c_uint32), ('log', c_void_p), ('log_ctx', c_void_p), ('log_level', c_int),
        ('on_peer', c_void_p), ('on_peer_ctx', c_void_p),
    ]


class RegionOptions(ctypes.Structure):
    _c_name_ = 'remo_region_options'
    _fields_ = [('participants', Nodeset), ('providers', Nodeset), ('ctx', c_void_p),
                ('on_immediate', c_void_p)]


class AtomicVarOptions(ctypes.Structure):
    _c_name_ = 'remo_atomic_var_options'
    _fields_ = [('participants', Nodeset), ('count', c_uint64), ('place', c_int32), ('home', c_uint32)]


class LockOptions(ctypes.Structure):
    _c_name_ = 'remo_lock_options'
    _fields_ = [('participants', Nodeset), ('count', c_uint32), ('homes', Nodeset)]


class BarrierOptions(ctypes.Structure):
    _c_name_ = 'remo_barrier_options'
    _fields_ = [('participants', Nodeset)]


class QueueOptions(ctypes.Structure):
    _c_name_ = 'remo_queue_options'
    _fields_ = [('participants', Nodeset), ('home', c_uint32), ('slot_bytes', c_uint32),
                ('capacity', c_uint64)]


class RingBufferOptions(ctypes.Structure):
    _c_name_ = 'remo_ringbuffer_options'
    _fields_ = [('participants', Nodeset), ('sender', c_uint32), ('capacity_bytes', c_uint64),
                ('ctx', c_void_p), ('on_arrival', c_void_p)]


class KVOptions(ctypes.Structure):
    _c_name_ = 'remo_kv_options'
    _fields_ = [('participants', Nodeset), ('capacity', c_uint64), ('key_bytes_max', c_uint32),
                ('value_bytes_max', c_uint32), ('stripes', c_uint32)]


class OwnedVarOptions(ctypes.Structure):
    _c_name_ = 'remo_owned_var_options'
    _fields_ = [('participants', Nodeset), ('owner', c_uint32)]


class SSTOptions(ctypes.Structure):
    _c_name_ = 'remo_sst_options'
    _fields_ = [('participants', Nodeset)]


class CollectiveOptions(ctypes.Structure):
    _c_name_ = 'remo_collective_options'
    _fields_ = [('participants', Nodeset), ('bytes_max', c_uint32)]


class HeapOptions(ctypes.Structure):
    _c_name_ = 'remo_heap_options'
    _fields_ = [('participants', Nodeset), ('limit_bytes', c_uint64)]


class HeapSizes(ctypes.Structure):
    _c_name_ = 'remo_heap_sizes'
    _fields_ = [(name, c_uint64) for name in ('reserved_bytes', 'live_bytes', 'retired_bytes')]


class Ack(ctypes.Structure):
    _c_name_ = 'remo_ack'
    _fields_ = [('thread', c_void_p), ('pending', c_uint32), ('status', c_int32)]


class KVCursor(ctypes.Structure):
    _c_name_ = 'remo_kv_cursor'
    _fields_ = [('internal', c_uint64 * 2)]


class TreeKey(ctypes.Structure):
    _c_name_ = 'remo_tree_key'
    _fields_ = [('data', c_void_p), ('bytes', c_size_t)]


class TreeOptions(ctypes.Structure):
    _c_name_ = 'remo_tree_options'
    _fields_ = [('participants', Nodeset), ('owners', Nodeset), ('boundaries', POINTER(TreeKey)),
                ('nodes', c_uint32), ('node_bytes', c_uint32), ('key_bytes_max', c_uint32),
                ('value_bytes_max', c_uint32), ('retain', c_uint32)]


class TreeRange(ctypes.Structure):
    _c_name_ = 'remo_tree_range'
    _fields_ = [('from', TreeKey), ('to', TreeKey), ('limit', c_uint64), ('flags', c_uint32),
                ('snapshot', POINTER(c_uint64))]


class TreeEntry(ctypes.Structure):
    _c_name_ = 'remo_tree_entry'
    _fields_ = [('key', TreeKey), ('value', TreeKey)]


class TreeItem(ctypes.Structure):
    _c_name_ = 'remo_tree_item'
    _fields_ = [('key', TreeKey), ('value', c_void_p), ('value_cap', c_size_t), ('value_bytes', c_size_t),
                ('status', c_int)]


class TreeWrite(ctypes.Structure):
    _c_name_ = 'remo_tree_write'
    _fields_ = [('kind', c_int), ('key', TreeKey), ('value', TreeKey), ('expected', TreeKey)]


class TreeOwnerStats(ctypes.Structure):
    _c_name_ = 'remo_tree_owner_stats'
    _fields_ = [('nodes', c_uint32), ('nodes_max', c_uint32), ('levels', c_uint32), ('version', c_uint64)]


STRUCTURES = (Nodeset, Address, Stats, Config, RegionOptions, AtomicVarOptions, LockOptions, BarrierOptions,
              QueueOptions, RingBufferOptions, KVOptions, OwnedVarOptions, SSTOptions, CollectiveOptions,
              HeapOptions, HeapSizes, Ack, KVCursor, TreeKey, TreeOptions, TreeRange, TreeEntry,
              TreeItem, TreeWrite, TreeOwnerStats)

# The callbacks of struct remo_config, of remo_sst_wait and of remo_tree_load.
ON_PEER = ctypes.CFUNCTYPE(None, c_void_p, c_uint32, c_int)
SST_READY = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)
TREE_NEXT = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(TreeEntry))

_out = POINTER(c_void_p)
_ack = POINTER(Ack)  # None: the call blocks until the operation is complete
_size = POINTER(c_size_t)
_word = POINTER(c_uint64)


def _object(name, *arguments):
    """Return the functions that all objects have: open, close and channel."""
    return {
        f'remo_{name}_open': (c_int, c_void_p, c_char_p, *arguments, _out),
        f'remo_{name}_close': (None, c_void_p),
        f'remo_{name}_channel': (c_void_p, c_void_p),
    }


# name: (result, argument...)
FUNCTIONS = {
    'remo_last_error': (c_char_p,),
    'remo_error_name': (c_char_p, c_int),
    'remo_error_text': (c_char_p, c_int),
    'remo_node_open': (c_int, POINTER(Config), _out),
    'remo_node_close': (None, c_void_p),
    'remo_node_rank': (c_uint32, c_void_p),
    'remo_node_size': (c_uint32, c_void_p),
    'remo_node_fabric': (c_char_p, c_void_p),
    'remo_node_root': (c_void_p, c_void_p),
    'remo_node_peer': (c_int, c_void_p, c_uint32),
    'remo_node_stats': (None, c_void_p, POINTER(Stats)),
    'remo_fence': (c_int, c_void_p, c_int, c_uint32),
    'remo_read': (c_int, c_void_p, Address, c_void_p, c_size_t, _ack),
    'remo_write': (c_int, c_void_p, Address, c_void_p, c_size_t, _ack),
    'remo_fetch_add': (c_int, c_void_p, Address, c_uint64, _word, _ack),
    'remo_compare_swap': (c_int, c_void_p, Address, c_uint64, c_uint64, _word, _ack),
    'remo_channel_wait': (c_int, c_void_p, c_uint64),
    'remo_channel_participants': (POINTER(Nodeset), c_void_p),
    'remo_ack_test': (c_int, _ack),
    'remo_ack_wait_any': (c_int, POINTER(_ack), c_uint32, c_uint64, POINTER(c_uint32)),
    'remo_ack_cancel': (None, _ack),
    'remo_event_open': (c_int, c_void_p, _out),
    'remo_event_close': (None, c_void_p),
    'remo_event_fd': (c_int, c_void_p),
    'remo_event_arm': (c_int, c_void_p),
    **_object('region', c_uint64, POINTER(RegionOptions)),
    'remo_region_local': (c_void_p, c_void_p),
    'remo_region_read': (c_int, c_void_p, c_uint32, c_uint64, c_void_p, c_size_t, _ack),
    'remo_region_write': (c_int, c_void_p, c_uint32, c_uint64, c_void_p, c_size_t, c_uint32, _ack),
    'remo_region_fetch_add': (c_int, c_void_p, c_uint32, c_uint64, c_uint64, _word, _ack),
    'remo_region_compare_swap': (c_int, c_void_p, c_uint32, c_uint64, c_uint64, c_uint64, _word, _ack),
    **_object('atomic_var', POINTER(AtomicVarOptions)),
    'remo_atomic_var_load': (c_int, c_void_p, c_uint64, _word, _ack),
    'remo_atomic_var_fetch_add': (c_int, c_void_p, c_uint64, c_uint64, _word, _ack),
    'remo_atomic_var_compare_swap': (c_int, c_void_p, c_uint64, c_uint64, c_uint64, _word, _ack),
    'remo_atomic_var_store': (c_int, c_void_p, c_uint64, c_uint64),
    'remo_atomic_var_exchange': (c_int, c_void_p, c_uint64, c_uint64, _word),
    **_object('owned_var', c_size_t, POINTER(OwnedVarOptions)),
    'remo_owned_var_store': (c_int, c_void_p, c_void_p),
    'remo_owned_var_load': (c_int, c_void_p, c_void_p),
    'remo_owned_var_push': (c_int, c_void_p, c_uint32, _ack),
    'remo_owned_var_push_all': (c_int, c_void_p, _ack),
    'remo_owned_var_pull': (c_int, c_void_p, c_void_p),
    'remo_owned_var_wait': (c_int, c_void_p, c_void_p, c_void_p, c_uint64),
    **_object('sst', c_size_t, POINTER(SSTOptions)),
    'remo_sst_store': (c_int, c_void_p, c_void_p),
    'remo_sst_load': (c_int, c_void_p, c_uint32, c_void_p),
    'remo_sst_push': (c_int, c_void_p, c_uint32, _ack),
    'remo_sst_push_all': (c_int, c_void_p, _ack),
    'remo_sst_wait': (c_int, c_void_p, SST_READY, c_void_p, c_uint64),
    **_object('collective', POINTER(CollectiveOptions)),
    'remo_collective_broadcast': (c_int, c_void_p, c_uint32, c_void_p, c_size_t, c_uint64),
    'remo_collective_reduce':
        (c_int, c_void_p, c_uint32, c_void_p, c_void_p, c_size_t, c_int, c_int, c_uint64),
    'remo_collective_all_reduce': (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_uint64),
    'remo_collective_gather': (c_int, c_void_p, c_uint32, c_void_p, c_void_p, c_size_t, c_uint64),
    'remo_collective_all_gather': (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_uint64),
    **_object('heap', POINTER(HeapOptions)),
    'remo_heap_alloc': (c_int, c_void_p, c_uint64, c_uint64, POINTER(Address)),
    'remo_heap_free': (c_int, c_void_p, Address),
    'remo_heap_retire': (c_int, c_void_p, Address),
    'remo_heap_reclaim': (c_int, c_void_p, c_uint64),
    'remo_heap_pin': (c_int, c_void_p),
    'remo_heap_unpin': (c_int, c_void_p),
    'remo_heap_stats': (None, c_void_p, POINTER(HeapSizes)),
    **_object('lock', POINTER(LockOptions)),
    'remo_lock_acquire': (c_int, c_void_p, c_uint32, c_uint64),
    'remo_lock_release': (c_int, c_void_p, c_uint32, c_int),
    'remo_lock_consistent': (c_int, c_void_p, c_uint32),
    **_object('barrier', POINTER(BarrierOptions)),
    'remo_barrier_wait': (c_int, c_void_p, c_uint64),
    **_object('queue', POINTER(QueueOptions)),
    'remo_queue_push': (c_int, c_void_p, c_void_p, c_size_t, c_uint64),
    'remo_queue_pop': (c_int, c_void_p, c_void_p, c_size_t, _size, c_uint64),
    **_object('ringbuffer', POINTER(RingBufferOptions)),
    'remo_ringbuffer_message_bytes_max': (c_size_t, c_void_p),
    'remo_ringbuffer_send': (c_int, c_void_p, c_void_p, c_size_t, c_uint64, _word),
    'remo_ringbuffer_wait_received': (c_int, c_void_p, c_uint64, c_uint64),
    'remo_ringbuffer_receive': (c_int, c_void_p, c_void_p, c_size_t, _size, c_uint64),
    'remo_ringbuffer_acknowledge': (c_int, c_void_p),
    **_object('kv', POINTER(KVOptions)),
    'remo_kv_get': (c_int, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, _size),
    'remo_kv_insert': (c_int, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t),
    'remo_kv_update': (c_int, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t),
    'remo_kv_put': (c_int, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t),
    'remo_kv_fetch_add': (c_int, c_void_p, c_void_p, c_size_t, c_uint64, _word),
    'remo_kv_compare_put': (c_int, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_size_t),
    'remo_kv_delete': (c_int, c_void_p, c_void_p, c_size_t),
    'remo_kv_next':
        (c_int, c_void_p, POINTER(KVCursor), c_void_p, c_size_t, _size, c_void_p, c_size_t, _size),
    'remo_kv_count': (c_uint64, c_void_p),
    **_object('tree', POINTER(TreeOptions)),
    'remo_tree_get': (c_int, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, _size),
    'remo_tree_get_at': (c_int, c_void_p, _word, c_void_p, c_size_t, c_void_p, c_size_t, _size),
    'remo_tree_get_many': (c_int, c_void_p, POINTER(TreeItem), c_uint32),
    'remo_tree_insert': (c_int, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t),
    'remo_tree_update': (c_int, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t),
    'remo_tree_upsert': (c_int, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t),
    'remo_tree_remove': (c_int, c_void_p, c_void_p, c_size_t),
    'remo_tree_compare_put': (c_int, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_size_t),
    'remo_tree_apply': (c_int, c_void_p, POINTER(TreeWrite), c_uint32, POINTER(c_uint32)),
    'remo_tree_load': (c_int, c_void_p, TREE_NEXT, c_void_p, c_uint32, _word),
    'remo_tree_remove_range': (c_int, c_void_p, POINTER(TreeRange), _word),
    'remo_tree_cursor_open': (c_int, c_void_p, POINTER(TreeRange), c_size_t, _out),
    'remo_tree_cursor_next': (c_int, c_void_p, POINTER(TreeEntry)),
    'remo_tree_cursor_close': (None, c_void_p),
    'remo_tree_count': (c_int, c_void_p, POINTER(TreeRange), _word),
    'remo_tree_owner': (c_uint32, c_void_p, c_void_p, c_size_t),
    'remo_tree_owners': (c_uint32, c_void_p),
    'remo_tree_snapshot': (c_int, c_void_p, _word),
    'remo_tree_stats': (c_int, c_void_p, POINTER(TreeOwnerStats)),
}


def _load() -> ctypes.CDLL:
    names = [os.environ['REMO_LIBRARY']] if os.environ.get('REMO_LIBRARY') else SONAMES
    failures = []
    for name in names:
        try:
            loaded = ctypes.CDLL(name)  # CDLL, not PyDLL: it releases the interpreter lock during each call
            break
        except OSError as failure:
            failures.append(str(failure))
    else:
        raise ImportError(f'cannot load the library of Remo: {"; ".join(failures)}; '
                          'install Remo, or name the file in REMO_LIBRARY')
    for name, (result, *arguments) in FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


library = _load()
