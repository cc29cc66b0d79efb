"""The objects of the simulator and the tests of the library that must detect a change of a file.

The first prefix of a path decides. Tests of nodes run on fabric shm; others are given with their whole name.
Tests of more than 15 s are left out.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Target:
    prefix: str
    objects: tuple[str, ...]
    tests: tuple[str, ...]


ERROR_TESTS = ["null_arguments", "bad_input", "open_fails"]  # of all public functions
FOLDERS = tuple(f"src/{layer}/" for layer in ("objects", "systems", "channel", "remote", "node", "memory"))
PUBLIC = tuple(folder for folder in FOLDERS if folder != "src/memory/")
OPENED = ("src/objects/", "src/systems/")


def _target(prefix, objects, tests_of_nodes, other_tests=()):
    of_objects = ERROR_TESTS if prefix.startswith(PUBLIC) else []
    of_options = ["agreement"] if prefix.startswith(OPENED) else []
    tests = [*other_tests, *(f"{name} shm" for name in [*tests_of_nodes, *of_objects, *of_options])]
    return Target(prefix, tuple(objects.split()), tuple(tests))


CHANNEL_TESTS = [
    "channel",
    "channel_many",
    "channel_messages",
    "channel_mismatch",
    "channel_turns",
    "participants",
    "agreement",
]
HEAP_TESTS = ["heap", "heap_failure", "heap_reclaim"]
LOCK_TESTS = ["lock", "lock_cost", "lock_failure"]
REMOTE_TESTS = ["mapped_fence", "event", "node_access", "node_ops", "death"]
RPC_TESTS = ["rpc", "rpc_failure", "rpc_long", "rpc_ring"]
TABLE_TESTS = ["table", "growth"]
TASK_TESTS = ["task", "task_waits"]
TREE_TESTS = [
    *("tree", "tree_apply", "tree_change", "tree_cost", "tree_cursor", "tree_failure", "tree_load"),
    *("tree_range", "tree_scan", "tree_window", "history_tree"),
]
TX_TESTS = ["tx", "tx_claim", "tx_many", "tx_owners", "tx_queue", "tx_wait", "tx_wait_limits", "history_tx"]
VERSIONED_TESTS = [
    *("versioned", "versioned_cost", "versioned_errors", "versioned_failure", "versioned_reads"),
]

TARGETS = (
    _target("src/objects/lock/", "lock kv", LOCK_TESTS, ["fuzz lock_message"]),
    _target("src/objects/queue/", "queue", ["queue"]),
    _target("src/objects/heap/", "heap", ["mapped_fence", *HEAP_TESTS], ["fuzz heap"]),
    _target("src/objects/collective/", "collective", ["collective"]),
    _target("src/objects/barrier", "barrier collective", ["barrier"]),
    _target("src/objects/stages", "barrier", ["barrier"], ["stages"]),
    _target("src/objects/cell", "owned_var sst", ["owned_var", "sst"], ["formats"]),
    _target("src/objects/sst", "sst barrier", ["sst", "barrier"]),
    _target("src/objects/owned_var", "owned_var", ["owned_var"]),
    _target("src/objects/atomic_var", "atomic_var", ["atomic_var"]),
    _target("src/objects/region", "region owned_var", ["region"]),
    _target("src/objects/ring", "ringbuffer kv", ["ringbuffer", "kv"], ["formats", "fuzz ring_record"]),
    _target("src/objects/leaf_call", "rpc kv", ["rpc", "kv"], ["rpc_slot"]),
    _target("src/objects/rpc/", "rpc tx", RPC_TESTS, ["fuzz rpc", "rpc_slot"]),
    _target("src/objects/versioned", "versioned", VERSIONED_TESTS, ["fuzz versioned"]),
    _target(
        "src/systems/kv/",
        "kv",
        ["kv", "kv_changes", "kv_merge", "kv_slots", "kv_stress", "kv_window"],
        ["kv_index", "kv_slot", "fuzz kv_slot", "kv_release ofi"],
    ),
    _target("src/systems/tree/", "tree", TREE_TESTS, ["tree_merge", "tree_node", "fuzz tree"]),
    _target("src/systems/tx/tx_queue", "tx", TX_TESTS, ["fuzz tx"]),
    _target(
        "src/systems/tx/",
        "table structure tx",
        [*TABLE_TESTS, *TX_TESTS],
        ["key_claim", "tx_resolve", "fuzz structure", "fuzz tx"],
    ),
    _target("src/channel/", "channel lock queue heap", CHANNEL_TESTS, ["early", "fuzz channel"]),
    _target("src/remote/scheduler", "task", TASK_TESTS),
    _target("src/remote/task", "task", TASK_TESTS),
    _target("src/remote/watch", "task", [*TASK_TESTS, "event"], ["watch", "sweep"]),
    _target(
        "src/remote/",
        "region lock queue barrier kv rpc task",
        [*REMOTE_TESTS, *TASK_TESTS],
        ["deferred", "failed", "loss", "mapped", "sweep", "threads_fence", "ofi_arrivals ofi"],
    ),
    _target(
        "src/node/",
        "region lock heap",
        ["mapped_fence", "node", "death", "event"],
        ["settings", "loss", "arena", "peer"],
    ),
    _target("src/memory/stacks", "task", TASK_TESTS),
    _target("src/memory/", "heap region", ["little_memory", "node"], ["segment", "available", "arena"]),
)


def target_of(file):
    """Return the target of a file of the source, or None."""
    return next((target for target in TARGETS if file.startswith(target.prefix)), None)
