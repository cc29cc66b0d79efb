#!/usr/bin/env python3
"""Tests of the Python package between nodes: remo run -n 3 -- test_python.py AREA

Every node that survives prints "passed".
"""
import array
import asyncio
import collections.abc
import contextlib
import os
import pathlib
import queue
import select
import signal
import sys
import threading
import time
import traceback

import remo

PATIENCE = 100.0  # limit in seconds of calls that must succeed


def expect(error, call, *words):
    """Check that the call raises this error, with a sentence that contains these words."""
    try:
        call()
    except error as raised:
        assert isinstance(raised, remo.Error) and raised.sentence, repr(raised)
        for word in words:
            assert word in str(raised), f'no "{word}" in: {raised}'
    else:
        raise AssertionError(f'{error.__name__} was not raised')


def crash_last(node):
    """The last node of the job crashes, after all others have called this; they return when it has failed."""
    arrivals, victim = remo.AtomicVar(node, 'arrivals'), node.size - 1
    if node.rank != victim:
        arrivals.fetch_add()
        while (state := node.peer(victim)) is remo.Peer.UP:
            time.sleep(0.001)
        assert state is remo.Peer.DEAD, state
        return
    while arrivals.load() != victim:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)


def test_region(node):
    barrier, region = remo.Barrier(node, 'all'), remo.Region(node, 'region', 4096)
    region.wait_connected(PATIENCE)
    after, before = (node.rank + 1) % node.size, (node.rank - 1) % node.size
    region.write(after, 64, f'node {node.rank}')
    region.write(after, 128, bytearray(b'array'), notify=True)
    region.write(after, 192, memoryview(b'..view..')[2:6])
    node.fence(remo.Fence.THREAD)
    barrier.wait(PATIENCE)
    assert region.read(node.rank, 64, 6) == f'node {before}'.encode()
    assert bytes(region.local[128:133]) == b'array' and len(region.local) == 4096
    into = bytearray(8)
    region.read_into(after, 192, memoryview(into)[2:6])
    assert into == b'\0\0view\0\0', into
    region.fetch_add(0, 0, 2)
    barrier.wait(PATIENCE)
    assert region.compare_swap(0, 0, 1, 5) == 2 * node.size
    region.local[3000] = 7
    assert region.read(node.rank, 3000, 1) == b'\7'
    assert node.stats()['atomics'] >= 2 and node.fabric
    barrier.wait(PATIENCE)


def test_atomic_var(node):
    barrier, words = remo.Barrier(node, 'all'), remo.AtomicVar(node, 'words', 4, striped=True)
    words.fetch_add(5, 1)
    barrier.wait(PATIENCE)
    assert words.load(1) == 5 * node.size
    if node.rank == 0:
        words.store(2**64 - 1, 2)
        assert words.exchange(1, 2) == 2**64 - 1 and words.compare_swap(1, 3, 2) == 1
    barrier.wait(PATIENCE)
    assert words.load(2) == 3
    barrier.wait(PATIENCE)


def test_lock(node):
    """Threads of all nodes add to a word without atomics: the interpreter lock is free while they wait."""
    barrier, region = remo.Barrier(node, 'all'), remo.Region(node, 'region', 64)
    table = remo.LockTable(node, 'locks', 2)
    node.wait_connected(PATIENCE)

    def work():
        for _ in range(50):
            with table[1]:
                value = int.from_bytes(region.read(0, 0, 8), 'little')
                region.write(0, 0, (value + 1).to_bytes(8, 'little'))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    barrier.wait(PATIENCE)
    assert int.from_bytes(region.read(0, 0, 8), 'little') == 100 * node.size
    if node.rank == 0:
        assert table.acquire(0) is remo.Acquired.CLEAN
    barrier.wait(PATIENCE)
    if node.rank != 0:
        expect(remo.Timeout, lambda: table.acquire(0, timeout=0))
        expect(TimeoutError, lambda: table.acquire(0, timeout=0.01))
    barrier.wait(PATIENCE)
    if node.rank == 0:
        table.release(0)
    expect(remo.Error, lambda: table.release(1), 'EPERM')
    expect(ValueError, lambda: table.acquire(9))
    barrier.wait(PATIENCE)


def test_owner_dead(node):
    victim = node.size - 1
    table, repairs = remo.LockTable(node, 'locks', 3), remo.AtomicVar(node, 'repairs')
    node.wait_connected(PATIENCE)
    if node.rank == victim:
        for index in range(3):
            table.acquire(index)
    crash_last(node)
    rest = remo.Barrier(node, 'rest', participants=range(victim))
    with remo.Lock(table, 0, repair=lambda: repairs.fetch_add()):
        pass
    rest.wait(PATIENCE)
    assert repairs.load() == 1
    if node.rank == 0:
        assert table.acquire(1, PATIENCE) is remo.Acquired.OWNER_DEAD
        table.consistent(1)
        table.release(1)
        expect(remo.OwnerDead, lambda: table[2].__enter__(), 'repair')
    rest.wait(PATIENCE)
    with table[1]:
        pass
    expect(remo.NotRecoverable, lambda: table.acquire(2, PATIENCE))
    rest.wait(PATIENCE)


def test_peer_fails(node):
    barrier = remo.Barrier(node, 'all')
    barrier.wait(PATIENCE)
    crash_last(node)
    expect(remo.HostDown, lambda: barrier.wait(PATIENCE), 'EHOSTDOWN', 'all')


def test_queue(node):
    barrier, queue = remo.Barrier(node, 'all'), remo.Queue(node, 'queue', 30, slot_bytes=100)
    node.wait_connected(PATIENCE)
    for i in range(5):
        assert queue.push('x' * (10 * node.rank + i), PATIENCE)
    barrier.wait(PATIENCE)
    if node.rank == 0:
        sizes = sorted(len(queue.pop(PATIENCE)) for _ in range(5 * node.size))
        assert sizes == [10 * rank + i for rank in range(node.size) for i in range(5)]
        assert queue.pop(0) is None and queue.pop(0.01) is None
        while queue.push(b'fill', 0):
            pass
        assert queue.pop() == b'fill'
    expect(remo.Error, lambda: queue.push(bytes(101)), 'EMSGSIZE')
    barrier.wait(PATIENCE)


def test_ringbuffer(node):
    barrier, ring = remo.Barrier(node, 'all'), remo.RingBuffer(node, 'ring')
    node.wait_connected(PATIENCE)
    if node.rank == 0:
        position = [ring.send(str(i), PATIENCE) for i in range(1000)][-1]
        ring.wait_received(position, PATIENCE)
        expect(remo.Error, lambda: ring.send(bytes(ring.message_bytes_max + 1)), 'EMSGSIZE')
    else:
        assert [ring.receive(PATIENCE) for _ in range(1000)] == [str(i).encode() for i in range(1000)]
        ring.acknowledge()
        assert ring.receive(0) is None
    barrier.wait(PATIENCE)


def expect_key_error(call):
    """Check that the call raises KeyError."""
    try:
        call()
    except KeyError:
        return
    raise AssertionError('an absent key was found')


def test_kv(node):
    barrier, map_ = remo.Barrier(node, 'all'), remo.KV(node, 'map', value_bytes_max=5000)
    node.wait_connected(PATIENCE)
    mine = f'key {node.rank}'
    map_[mine] = 'v' * (3000 + node.rank)
    assert not map_.insert(mine, '')
    barrier.wait(PATIENCE)
    for rank in range(node.size):
        assert map_[f'key {rank}'] == b'v' * (3000 + rank) and f'key {rank}' in map_
    assert len(map_) == node.size
    barrier.wait(PATIENCE)
    map_[mine] = b'short'
    assert map_.get(mine) == b'short'
    del map_[mine]
    assert map_.get(mine, b'none') == b'none' and mine not in map_ and not map_.replace(mine, 'x')
    expect_key_error(lambda: map_['absent'])
    expect_key_error(lambda: map_.__delitem__('absent'))
    barrier.wait(PATIENCE)
    map_['contended'] = str(node.rank)
    map_.put('contended', str(node.rank))
    barrier.wait(PATIENCE)
    assert int(map_['contended']) < node.size
    for call in (map_.get, map_.__contains__, lambda key: map_.put(key, '')):
        expect(remo.Error, lambda call=call: call('k' * 65), 'EMSGSIZE')
    barrier.wait(PATIENCE)


def test_kv_atomic(node):
    """Counters and compare-and-put: no change of any node is lost."""
    barrier, map_ = remo.Barrier(node, 'all'), remo.KV(node, 'map')
    node.wait_connected(PATIENCE)
    map_.insert('count', bytes(8))
    map_.setdefault('text', '.')
    barrier.wait(PATIENCE)
    for _ in range(20):
        map_.fetch_add('count', 3)
        map_.fetch_add('count', -1)
        while not map_.compare_put('text', (text := map_['text']), text + b'x'):
            pass
    barrier.wait(PATIENCE)
    assert int.from_bytes(map_['count'], sys.byteorder) == 40 * node.size
    assert map_['text'] == b'.' + b'x' * 20 * node.size
    barrier.wait(PATIENCE)
    assert not map_.compare_put('text', 'other', '') and not map_.compare_put('absent', '', '')
    expect_key_error(lambda: map_.fetch_add('absent'))
    expect(ValueError, lambda: map_.fetch_add('text'))
    barrier.wait(PATIENCE)
    if node.rank == 0:
        assert map_.fetch_add('count', 1) == 40 * node.size
    barrier.wait(PATIENCE)


def test_kv_mapping(node):
    """The map is a MutableMapping: it behaves as a dict, while no other node changes it."""
    barrier, map_ = remo.Barrier(node, 'all'), remo.KV(node, 'map', key_bytes_max=200, value_bytes_max=5000)
    other = remo.KV(node, 'other')
    node.wait_connected(PATIENCE)
    assert isinstance(map_, collections.abc.MutableMapping) and map_ != other and len({map_, other}) == 2
    assert not other and list(other) == [] and list(other.items()) == []
    # Keys and values longer than the initial buffers of an iterator, and an empty value.
    expected = {f'{rank} {i}'.encode().ljust(1 + 60 * i, b'k'): bytes(1500 * i) for rank in range(node.size)
                for i in range(4)}
    map_.update({key: value for key, value in expected.items() if key.startswith(b'%d' % node.rank)})
    barrier.wait(PATIENCE)
    assert sorted(map_) == sorted(expected) == sorted(map_.keys()) and len(map_) == len(expected)
    assert dict(map_.items()) == expected == dict(map_)
    assert sorted(map_.values()) == sorted(expected.values()) and bytes(4500) in map_.values()
    assert (b'0 0', b'') in map_.items() and (b'0 0', b'x') not in map_.items() and b'0 0' in map_.keys()
    barrier.wait(PATIENCE)
    if node.rank == 0:
        assert map_.pop('0 0') == b'' and map_.pop('0 0', None) is None
        expect_key_error(lambda: map_.pop('0 0'))
        key, value = map_.popitem()
        assert expected[key] == value and key not in map_
        assert map_.setdefault('new', 'first') == b'first' == map_.setdefault('new', 'second')
        map_.clear()
        assert list(map_) == []
        expect_key_error(map_.popitem)
    barrier.wait(PATIENCE)


def test_kv_moves(node):
    """A key that stays is returned exactly once, while other nodes insert and delete keys."""
    barrier, map_ = remo.Barrier(node, 'all'), remo.KV(node, 'map')
    walks = remo.AtomicVar(node, 'walks')
    node.wait_connected(PATIENCE)
    stays = [f'stays {i}'.encode() for i in range(100)]
    if node.rank == 0:
        map_.update((key, key) for key in stays)
    barrier.wait(PATIENCE)
    if node.rank == 0:
        for _ in range(5):
            entries = list(map_.items())
            assert sorted(key for key, _ in entries if key.startswith(b'stays')) == sorted(stays)
            assert all(key == value for key, value in entries)
        walks.fetch_add()
    i = 0
    while walks.load() == 0:
        key = f'moves {node.rank} {i % 50}'
        map_[key] = key
        del map_[key]
        i += 1
    barrier.wait(PATIENCE)


def test_kv_peer_fails(node):
    """An iterator reports each key of a failed node once, and continues with the other keys."""
    map_ = remo.KV(node, 'map')
    node.wait_connected(PATIENCE)
    map_[f'key {node.rank}'] = ''
    crash_last(node)
    rest = remo.Barrier(node, 'rest', participants=range(node.size - 1))
    rest.wait(PATIENCE)
    keys, lost, walk = [], 0, iter(map_)
    while True:
        try:
            keys.append(next(walk))
        except StopIteration:
            break
        except remo.HostDown:
            lost += 1
    assert sorted(keys) == [f'key {rank}'.encode() for rank in range(node.size - 1)], keys
    assert lost == 1, lost
    assert len(map_) == node.size
    expect(remo.HostDown, lambda: list(map_.values()))
    rest.wait(PATIENCE)


def test_tree(node):
    """The tree is a MutableMapping in the order of keys."""
    barrier, tree = remo.Barrier(node, 'all'), remo.Tree(node, 'tree', boundaries=['1', b'2'], retain=500,
                                                         node_bytes=32768, value_bytes_max=3000)
    node.wait_connected(PATIENCE)
    assert isinstance(tree, collections.abc.MutableMapping) and not tree and len({tree}) == 1
    barrier.wait(PATIENCE)
    mine = f'{node.rank} mine'
    tree[mine] = 'v' * (2000 + node.rank)
    assert not tree.insert(mine, '') and tree.owners == node.size and tree.owner(mine) == node.rank
    assert tree.stats()['version'] > 0
    barrier.wait(PATIENCE)
    for rank in range(node.size):
        assert tree[f'{rank} mine'] == b'v' * (2000 + rank) and f'{rank} mine' in tree
    assert len(tree) == node.size and tree
    before = tree.snapshot()
    barrier.wait(PATIENCE)
    assert tree.replace(mine, 'short') and tree.get(mine) == b'short'
    assert tree.get_at(before, mine) == b'v' * (2000 + node.rank) and tree.get_at(before, 'x', 7) == 7
    assert tree.pop(mine) == b'short' and tree.pop(mine, None) is None and mine not in tree
    assert tree.get(mine, b'none') == b'none' and not tree.replace(mine, 'x') and not tree.delete(mine)
    expect_key_error(lambda: tree['absent'])
    expect_key_error(lambda: tree.__delitem__('absent'))
    barrier.wait(PATIENCE)
    past = tree.range(snapshot=before)
    assert list(past) == [f'{rank} mine'.encode() for rank in range(node.size)] and past.count() == node.size
    assert list(tree.range()) == [] and not tree
    barrier.wait(PATIENCE)
    if node.rank == 0:
        tree.update({b'b': b'2', b'a': b'1', b'': b'0'})
        assert list(tree.items()) == [(b'', b'0'), (b'a', b'1'), (b'b', b'2')]
        assert tree.setdefault('c', '3') == b'3' == tree.setdefault('c', '4')
        assert tree.popitem() == (b'', b'0')
        tree.clear()
        expect_key_error(tree.popitem)
    barrier.wait(PATIENCE)
    expect(remo.Error, lambda: tree.put('k' * 65, ''), 'EINVAL')
    expect(ValueError, lambda: remo.Tree(node, 'other', boundaries=['1']), '3 owners need 2')
    expect(ValueError, lambda: tree.get_at([1], mine), 'snapshot')
    barrier.wait(PATIENCE)


def test_tree_range(node):
    """Ranges of several pages and owners, in both directions."""
    barrier, tree = remo.Barrier(node, 'all'), remo.Tree(node, 'tree', boundaries=['0333', '0666'])
    node.wait_connected(PATIENCE)
    expected = {b'%04d' % i: b'%04d' % i * 50 for i in range(1000)}  # three pages and more
    for key in list(expected)[node.rank::node.size]:
        tree[key] = expected[key]
    barrier.wait(PATIENCE)
    keys = list(expected)
    assert list(tree) == keys and list(reversed(tree)) == keys[::-1] and len(tree) == 1000
    assert dict(tree.items()) == expected and list(tree.values()) == list(expected.values())
    assert list(tree['0100':'0900']) == keys[100:900] and list(tree[:'0005']) == keys[:5]
    assert list(tree['0995':].items()) == list(expected.items())[995:]
    assert list(tree.range('0100', '0900', reverse=True).values()) == list(expected.values())[899:99:-1]
    both = tree.range('0100', '0900', includes_start=False, includes_stop=True)
    assert list(both) == keys[101:901] and both.count() == 800
    back = tree.range('0100', '0900', includes_start=False, includes_stop=True, reverse=True)
    assert list(back.keys()) == keys[900:100:-1]
    for limit in (0, 1, 700):
        assert list(tree.range('0100', limit=limit)) == keys[100:100 + limit]
        assert list(tree.range(reverse=True, limit=limit)) == keys[:-limit - 1:-1]
        assert tree.range('0100', limit=limit).count() == limit
    assert b'0500' in tree.keys() and (b'0500', b'x') not in tree.items() and b'0001' * 50 in tree.values()
    first = tree[:'0003']
    assert b'0002' in first.keys() and b'0003' not in first.keys() and len(first.items()) == 3
    assert (b'0002', expected[b'0002']) in first.items() and expected[b'0003'] not in first.values()
    assert list(tree.range('x')) == [] and tree.range('x').count() == 0
    expect(ValueError, lambda: list(tree['2':'1']), 'from')
    expect(ValueError, lambda: tree['1':'2':3], 'step')
    barrier.wait(PATIENCE)
    before = tree.snapshot()
    barrier.wait(PATIENCE)
    tree.delete(b'%04d' % (300 * node.rank))
    barrier.wait(PATIENCE)
    assert list(tree.range(snapshot=before)) == keys and len(tree) == 1000 - node.size
    barrier.wait(PATIENCE)
    if node.rank == 0:
        assert tree.compare_put('0001', expected[b'0001'], 'new') and tree['0001'] == b'new'
        assert not tree.compare_put('0001', 'old', 'x') and not tree.compare_put('absent', '', 'x')
        assert tree.range('0001', limit=2).delete() == 2 and tree.range(limit=0).delete() == 0
        del tree['0100':'0200']
        assert not list(tree['0100':'0200']) and '0200' in tree and '0099' in tree
        expect(ValueError, lambda: tree.range(reverse=True).delete(), 'descending')
        tree.clear()
        assert not tree
    barrier.wait(PATIENCE)


def test_tree_batches(node):
    """Loads, gets of several keys, and several writes at one instant."""
    barrier = remo.Barrier(node, 'all')
    tree = remo.Tree(node, 'tree', owners=[0], node_bytes=32768, value_bytes_max=3000)
    node.wait_connected(PATIENCE)
    if node.rank == 0:
        assert tree.load({'0': '', b'00': 'v' * 2000}, fill_percent=100) == 2 and tree.load([]) == 0
        assert tree.load((f'{i:04}', bytes(i % 50)) for i in range(1, 3000)) == 2999
        expect(remo.Error, lambda: tree.load([('4', ''), ('3', '')]), 'EINVAL', "'3'")
        assert tree['4'] == b'' and '3' not in tree
        expect(remo.Error, lambda: tree.load([('3', '3'), ('4', '')]), 'EEXIST', "'4'")
        assert tree['3'] == b'3'
        try:
            tree.load((f'5{i}', bytes(6 // (3 - i))) for i in range(9))
        except ZeroDivisionError:
            assert list(tree['5':].items()) == [(b'50', bytes(2)), (b'51', bytes(3)), (b'52', bytes(6))]
        else:
            raise AssertionError('a load ignores an exception')
        expect(ValueError, lambda: tree.load([], fill_percent=49), 'fill_percent')
    else:
        expect(remo.Error, lambda: tree.load([]), 'EPERM')
    barrier.wait(PATIENCE)
    assert len(tree) == 2 + 2999 + 2 + 3
    assert tree.get_many(['absent', '00', b'2999']) == [None, b'v' * 2000, bytes(49)]
    assert tree.get_many(iter(['1', '0']), 7) == [7, b''] and tree.get_many([]) == []
    expect(remo.Error, lambda: tree.get_many(['k' * 65]), 'EINVAL')
    barrier.wait(PATIENCE)
    mine = f'x{node.rank}'
    assert tree.apply(('insert', mine, '1'), ('replace', mine, '2')) is None
    assert tree.apply(('replace', mine, '3'), ('insert', mine, '4')) == 1 and tree[mine] == b'2'
    assert tree.apply(('delete', 'absent')) == 0 == tree.apply(('compare_put', mine, '3', '5'))
    assert tree.apply(('compare_put', mine, '2', '5')) is None and tree[mine] == b'5'
    assert tree.apply(('delete', mine), ('put', mine, '6')) is None and tree[mine] == b'6'
    expect(ValueError, lambda: tree.apply(), 'count')
    expect(ValueError, lambda: tree.apply(('put', mine)), 'arguments')
    expect(ValueError, lambda: tree.apply(('clear',)), 'compare_put')
    barrier.wait(PATIENCE)


def test_ack(node):
    """Reads and writes in flight together; waiting for any of them; a cancelled read does not write."""
    barrier, region = remo.Barrier(node, 'all'), remo.Region(node, 'region', 1 << 20)
    region.wait_connected(PATIENCE)
    after, before = (node.rank + 1) % node.size, (node.rank - 1) % node.size
    done = remo.Ack(node)
    for i in range(10):
        region.write(after, 100 * i, bytes([node.rank + 1]) * 100, ack=done)
    done.wait(PATIENCE)
    assert done.test()
    node.fence()
    barrier.wait(PATIENCE)
    into = [bytearray(100) for _ in range(10)]
    acks = [remo.Ack(node) for _ in into]
    for i, (buffer, ack) in enumerate(zip(into, acks)):
        region.read_into(node.rank, 100 * i, buffer, ack=ack)
    for _ in into:
        index = remo.wait_any(acks, PATIENCE)
        assert acks[index].test() and into[index] == bytes([before + 1]) * 100
        acks[index] = None
    expect(ValueError, lambda: remo.wait_any(acks, PATIENCE))
    cancelled, place = remo.Ack(node), bytearray(1 << 20)
    region.read_into(after, 0, place, ack=cancelled)
    cancelled.cancel()
    kept = bytes(place)
    node.fence(remo.Fence.GLOBAL)
    barrier.wait(PATIENCE)
    assert place == kept and cancelled.test()
    region.read_into(after, 0, place, ack=cancelled)  # cancelled by the close of the node
    barrier.wait(PATIENCE)
    node.close()
    assert cancelled.test()


def test_ack_fails(node):
    """An operation on a node that fails: its ack raises the error, and does not wait forever."""
    region = remo.Region(node, 'region', 1 << 20)
    region.wait_connected(PATIENCE)
    crash_last(node)
    done, good = remo.Ack(node), remo.Ack(node)

    def read_until_cut_off():  # until then, a read may still succeed
        while True:
            region.read_into(node.size - 1, 0, bytearray(1 << 20), ack=done)
            done.wait(PATIENCE)

    expect(remo.HostDown, read_until_cut_off)
    region.read_into(node.rank, 0, bytearray(8), ack=good)
    assert remo.wait_any([None, good], PATIENCE) == 1 and good.test()


def test_owned_var(node):
    barrier, var = remo.Barrier(node, 'all'), remo.OwnedVar(node, 'var', 8, owner=1)
    node.wait_connected(PATIENCE)
    assert var.participants == list(range(node.size))
    if node.rank == 1:
        var.store(b'value  1')
        var.push()
    else:
        assert var.wait(bytes(8), PATIENCE) == b'value  1' == var.load()
        expect(remo.Error, lambda: var.store(bytes(8)), 'EPERM')
    expect(ValueError, lambda: var.store(bytes(7)), '7 bytes', '8 bytes')
    expect(ValueError, lambda: var.wait(b''))
    barrier.wait(PATIENCE)
    if node.rank == 1:
        pushed = remo.Ack(node)
        var.store('value  2')
        var.push(0, ack=pushed)
        pushed.wait(PATIENCE)
        node.fence()
    barrier.wait(PATIENCE)
    assert var.load() == (b'value  1' if node.rank == 2 else b'value  2')
    assert var.pull() == b'value  2'
    expect(remo.Timeout, lambda: var.wait('value  2', 0.01))
    barrier.wait(PATIENCE)


def test_sst(node):
    barrier, table = remo.Barrier(node, 'all'), remo.SST(node, 'table', 20)
    node.wait_connected(PATIENCE)
    row = f'row of {node.rank}'.encode().ljust(20)
    table.store(row)
    table.push()
    table.wait(lambda t: all(t.load(rank).startswith(b'row of %d' % rank) for rank in t.participants),
               PATIENCE)
    barrier.wait(PATIENCE)
    table.store(bytes(20))
    expect(remo.Timeout, lambda: table.wait(lambda t: t.load((node.rank + 1) % node.size) == bytes(20), 0.01))
    expect(ValueError, lambda: table.store(bytes(21)), '20 bytes')
    try:
        table.wait(lambda _: 1 // 0, PATIENCE)
    except ZeroDivisionError:
        pass
    else:
        raise AssertionError('the exception was lost')
    barrier.wait(PATIENCE)


def test_collective(node):
    calls, ranks = remo.Collective(node, 'calls'), range(node.size)
    total = sum(ranks)
    assert calls.all_reduce(node.rank, timeout=PATIENCE) == total
    assert calls.all_reduce(-node.rank, remo.Reduction.MIN, PATIENCE) == 1 - node.size
    assert calls.all_reduce(node.rank / 2, remo.Reduction.MAX, PATIENCE) == (node.size - 1) / 2
    # 40,000 elements are a large contribution, which is divided among the nodes.
    many = calls.all_reduce(array.array('Q', [node.rank + 1]) * 40000, timeout=PATIENCE)
    assert many == array.array('Q', [total + node.size]) * 40000
    bits = calls.reduce(array.array('Q', [1 << node.rank, 0]), remo.Reduction.XOR, 1, PATIENCE)
    assert bits == (array.array('Q', [2**node.size - 1, 0]) if node.rank == 1 else None)
    text = bytearray(b'the root' if node.rank == 2 else 8)
    calls.broadcast(bytes(text) if node.rank == 2 else text, 2, PATIENCE)
    assert text == b'the root'
    rows = [b'rank %d' % rank for rank in ranks]
    assert calls.gather(f'rank {node.rank}', 0, PATIENCE) == (rows if node.rank == 0 else None)
    assert calls.all_gather(rows[node.rank], PATIENCE) == rows
    expect(ValueError, lambda: calls.all_reduce(array.array('i', [1])), 'format i')
    expect(ValueError, lambda: calls.all_reduce(0.5, remo.Reduction.XOR))
    expect(remo.Error, lambda: calls.all_gather(bytes((1 << 20) + 1)), 'EMSGSIZE')
    # A call that timed out continues when it is repeated.
    barrier = remo.Barrier(node, 'all')
    if node.rank == 0:
        expect(remo.Timeout, lambda: calls.all_gather('x', 0.01))
    barrier.wait(PATIENCE)
    assert calls.all_gather('x', PATIENCE) == [b'x'] * node.size
    barrier.wait(PATIENCE)


def test_collective_fails(node):
    calls = remo.Collective(node, 'calls')
    calls.all_gather('', PATIENCE)
    crash_last(node)
    expect(remo.HostDown, lambda: calls.all_reduce(1, timeout=PATIENCE), 'EHOSTDOWN')


def test_event(node):
    """A loop with select, and one with asyncio, wait for messages of a ring buffer."""
    barrier, ring, event = remo.Barrier(node, 'all'), remo.RingBuffer(node, 'ring'), remo.Event(node)
    node.wait_connected(PATIENCE)

    def receive_with_select():
        while True:
            event.arm()
            if (message := ring.receive(0)) is not None:
                return message
            assert select.select([event], [], [], PATIENCE)[0] == [event]

    async def receive_with_asyncio():
        while True:
            event.arm()
            if (message := ring.receive(0)) is not None:
                return message
            await asyncio.wait_for(event.changed(), PATIENCE)

    for call in (receive_with_select, lambda: asyncio.run(receive_with_asyncio())):
        barrier.wait(PATIENCE)
        if node.rank == 0:
            ring.send('news', PATIENCE)
        else:
            assert call() == b'news'
    barrier.wait(PATIENCE)
    event.close()
    expect(ValueError, event.fileno, 'closed')
    remo.Event(node).arm()  # closed by the node


def test_heap(node):
    """Node 0 publishes a block; node 1 uses it under a pin, which delays its reuse."""
    barrier, head = remo.Barrier(node, 'all'), remo.AtomicVar(node, 'head')
    heap = remo.Heap(node, 'heap', limit_bytes=8 << 20)
    heap.wait_connected(PATIENCE)
    if node.rank == 0:
        block = heap.alloc(64, 64)
        node.write(block, bytes(64))
        head.store(block)
        assert heap.sizes()['live_bytes'] == 64
    barrier.wait(PATIENCE)
    with heap.pinned() if node.rank == 1 else contextlib.nullcontext():
        block = head.load()
        node.fetch_add(block, 5)
        barrier.wait(PATIENCE)
        assert node.compare_swap(block, 10, 2**64 - 1) in (10, 2**64 - 1)
        barrier.wait(PATIENCE)
        assert node.read(block, 8) == b'\xff' * 8
        barrier.wait(PATIENCE)
        if node.rank == 0:
            heap.retire(block)
            expect(remo.Timeout, lambda: heap.reclaim(0), 'node 1 is still pinned')
        barrier.wait(PATIENCE)
    expect(remo.InvalidArgument, heap.unpin, 'has not pinned')
    if node.rank == 0:
        heap.reclaim(PATIENCE)
        assert heap.sizes()['retired_bytes'] == 0
        expect(remo.Error, lambda: heap.free(block), 'EALREADY')
        heap.free(heap.alloc(100))
    else:
        expect(remo.InvalidArgument, lambda: heap.free(block), 'free it at its own node')
    barrier.wait(PATIENCE)


def test_close(node):
    """Objects close with their block or with their node; a closed one raises an error."""
    with remo.AtomicVar(node, 'word', home=node.rank, participants=[node.rank]) as word:
        word.fetch_add()
    expect(remo.InvalidArgument, word.load, 'word', 'closed')
    word.close()
    barrier = remo.Barrier(node, 'all')
    expect(FileExistsError, lambda: remo.Region(node, 'all', 64))
    expect(ValueError, lambda: remo.Region(node, 'no/name', 64))
    expect(remo.InvalidArgument, lambda: remo.Node(fabric='pigeons'), 'pigeons')
    barrier.wait(PATIENCE)
    node.close()
    node.close()
    expect(remo.InvalidArgument, lambda: node.rank, 'closed node')
    expect(remo.InvalidArgument, barrier.wait, 'closed')


def test_interrupt(node):
    """A signal handler runs while the main thread waits without a timeout."""
    queue = remo.Queue(node, 'queue')
    queue.wait_connected(PATIENCE)

    def interrupt(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGUSR1, interrupt)
    try:  # the signal may arrive before the wait
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        queue.pop()
    except KeyboardInterrupt:
        return
    raise AssertionError('the wait was not interrupted')


def test_on_peer():
    """The callback gets each join, and then the failure or leave of a peer."""
    changes = queue.Queue()
    with remo.Node(on_peer=lambda rank, state: changes.put((rank, state))) as node:
        seen = {changes.get(timeout=PATIENCE) for _ in range(node.size - 1)}
        assert seen == {(rank, remo.Peer.UP) for rank in range(node.size) if rank != node.rank}, seen
        crash_last(node)
        assert changes.get(timeout=PATIENCE) == (node.size - 1, remo.Peer.DEAD)
        remo.Barrier(node, 'rest', participants=range(node.size - 1)).wait(PATIENCE)
        if node.rank == 0:
            assert changes.get(timeout=PATIENCE) == (1, remo.Peer.LEFT)


def pause(process):
    """Stop a process, and return when all its threads have stopped."""
    os.kill(process, signal.SIGSTOP)
    for status in pathlib.Path(f'/proc/{process}/task').glob('*/stat'):
        while status.read_text(encoding='utf-8').rpartition(')')[2].split()[0] != 'T':
            time.sleep(0.001)


def release_late(lock, data, paused):
    """End a with block while its write cannot arrive, because process `paused` is paused."""
    try:
        with lock:
            data.write(1, 0, b'one')
            lock.table.node.fence()
            pause(paused)
            data.write(1, 0, b'two')
            raise ZeroDivisionError
    except remo.Again as raised:
        assert isinstance(raised.__context__, ZeroDivisionError) and 'still held' in str(raised), raised
    else:
        raise AssertionError('the error of the release was lost')
    expect(remo.Error, lambda: lock.table.acquire(lock.index, 0), 'EDEADLK')  # held by this thread


def release(lock):
    """Release a lock, and repeat that until it succeeds."""
    while True:
        try:
            return lock.release()
        except remo.Again:
            continue


def test_lock_held():
    """The end of a with block whose writes may still arrive raises Again, with the lock still held; an
    exception of the block is its context."""
    # Only the release of rank 0 may time out: the barrier of rank 2 needs the paused node too.
    with remo.Node(op_timeout=5 if os.environ['REMO_RANK'] == '0' else PATIENCE) as node:
        table, data = remo.LockTable(node, 'locks'), remo.Region(node, 'data', 64)
        pids, barrier = remo.AtomicVar(node, 'pids', node.size, striped=True), remo.Barrier(node, 'all')
        node.wait_connected(PATIENCE)
        pids.store(os.getpid(), node.rank)
        barrier.wait(PATIENCE)
        if node.rank == 0:
            paused, lock = pids.load(1), table[0]
            try:
                release_late(lock, data, paused)
            finally:
                os.kill(paused, signal.SIGCONT)
            release(lock)
        barrier.wait(PATIENCE)
        with table[0]:
            assert data.read(1, 0, 3) == b'two'
        barrier.wait(PATIENCE)


# Areas that open their nodes themselves.
WITHOUT_NODE = (test_on_peer, test_lock_held)


def main():
    area = globals()[f'test_{sys.argv[1]}']
    try:
        if area in WITHOUT_NODE:
            area()
        else:
            with remo.Node() as node:
                area(node)
    except Exception:  # a node that fails prints why, and not "passed"
        print('FAILED:', traceback.format_exc(), file=sys.stderr)
        return 1
    print('passed')
    return 0


if __name__ == '__main__':
    sys.exit(main())
