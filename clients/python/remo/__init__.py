"""Remote-memory objects: locks, queues, maps and more in the memory of many processes.

    import remo

    with remo.Node() as node:
        total, barrier = remo.AtomicVar(node, "sum"), remo.Barrier(node, "all")
        total.fetch_add(node.rank)
        barrier.wait()
        print(total.load())
        barrier.wait()

Start the nodes of a program with ``remo run -n 4 -- python3 prog.py``.
"""
from .ack import Ack, wait_any
from .collective import Collective, Reduction
from .errors import (Again, Error, Exists, HostDown, InvalidArgument, NotConnected, NotFound,
                     NotRecoverable, OwnerDead, Timeout)
from .event import Event
from .heap import Heap
from .kv import KV
from .lock import Acquired, Barrier, Lock, LockTable
from .node import Fence, Node, Peer
from .queue import Queue, RingBuffer
from .region import AtomicVar, Region
from .shared import SST, OwnedVar
from .tree import Tree, TreeRange

__all__ = ['Ack', 'Acquired', 'Again', 'AtomicVar', 'Barrier', 'Collective', 'Error', 'Event', 'Exists',
           'Fence', 'Heap', 'HostDown', 'InvalidArgument', 'KV', 'Lock', 'LockTable', 'Node',
           'NotConnected', 'NotFound', 'NotRecoverable', 'OwnedVar', 'OwnerDead', 'Peer', 'Queue',
           'Reduction', 'Region', 'RingBuffer', 'SST', 'Timeout', 'Tree', 'TreeRange', 'wait_any']
