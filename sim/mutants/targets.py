"""The objects of the simulator and the tests of the library that must detect a change of a file.

The first prefix of a path decides. Tests of nodes run on fabric shm; others are given with their whole name.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Target:
    prefix: str
    objects: tuple[str, ...]
    tests: tuple[str, ...]


ERROR_TESTS = ["null_arguments"]  # of all public functions
PUBLIC = ("src/objects/", "src/systems/", "src/channel/", "src/remote/", "src/node/")


def _target(prefix, objects, tests_of_nodes, other_tests=()):
    of_objects = ERROR_TESTS if prefix.startswith(PUBLIC) else []
    tests = [*other_tests, *(f"{name} shm" for name in [*tests_of_nodes, *of_objects])]
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
REMOTE_TESTS = ["mapped_fence", "event", "node_access", "node_ops", "death"]

TARGETS = (
    _target("src/objects/lock/", "lock kv", ["lock", "lock_cost", "lock_failure"]),
    _target("src/objects/queue/", "queue", ["queue"]),
    _target("src/objects/heap/", "heap", ["mapped_fence", "heap", "heap_failure", "heap_reclaim"]),
    _target("src/objects/collective/", "collective", ["collective"]),
    _target("src/objects/barrier", "barrier collective", ["barrier"]),
    _target("src/objects/stages", "barrier", ["barrier"], ["stages"]),
    _target("src/objects/cell", "owned_var sst", ["owned_var", "sst"]),
    _target("src/objects/sst", "sst barrier", ["sst", "barrier"]),
    _target("src/objects/owned_var", "owned_var", ["owned_var"]),
    _target("src/objects/atomic_var", "atomic_var", ["atomic_var"]),
    _target("src/objects/region", "region owned_var", ["region"]),
    _target("src/objects/ring", "ringbuffer kv", ["ringbuffer"]),
    _target("src/objects/rpc/", "rpc tx", ["rpc", "rpc_failure", "rpc_long"], ["fuzz rpc", "rpc_slot"]),
    _target(
        "src/systems/kv/",
        "kv",
        ["kv", "kv_changes", "kv_stress"],
        ["kv_index", "kv_slot", "kv_release ofi"],
    ),
    _target("src/systems/tx/", "table tx", ["table", "tx"], ["execute", "fuzz structure", "fuzz tx"]),
    _target("src/channel/", "channel lock queue heap", CHANNEL_TESTS, ["early"]),
    _target("src/remote/scheduler", "task", ["task"]),
    _target("src/remote/task", "task", ["task"]),
    _target(
        "src/remote/",
        "region lock queue barrier kv task",
        REMOTE_TESTS,
        ["deferred", "failed", "loss", "mapped", "sweep", "threads_fence"],
    ),
    _target(
        "src/node/",
        "region lock heap",
        ["mapped_fence", "node", "death", "event"],
        ["settings", "loss", "arena", "peer"],
    ),
    _target("src/memory/stacks", "task", ["task"]),
    _target("src/memory/", "heap region", ["little_memory", "node"], ["segment", "available"]),
)


def target_of(file):
    """Return the target of a file of the source, or None."""
    return next((target for target in TARGETS if file.startswith(target.prefix)), None)
