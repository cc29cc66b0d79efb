/* test_cxx_errors.cpp - codes, sentences, moves, and locks of the C++ interface, also when a holder fails.
 *     remo run -n 3 -- test_cxx_errors AREA */
#include "check.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

using namespace std::chrono_literals;

namespace {

void test_codes(remo::node &node) {
    std::error_code code = remo::errc::host_down;
    CHECK(code.category() == remo::category() && std::string(code.category().name()) == "remo");
    CHECK(code.message() == remo_error_text(EHOSTDOWN));
    CHECK(std::error_code(remo::errc::timed_out) == std::errc::timed_out);
    CHECK(std::error_code(remo::errc::owner_dead) == std::errc::owner_dead);
    CHECK(code != std::errc::timed_out);

    remo::barrier all(node, "all");
    remo::region region(node, "region", 64);
    region.channel().wait(patience);
    CHECK_THROWS(region.read<std::uint64_t>(0, 64), remo::errc::invalid_argument);
    CHECK_THROWS(region.read<std::uint64_t>(99, 0), std::errc::invalid_argument);
    CHECK_THROWS(remo::region(node, "no/name", 64), remo::errc::invalid_argument);
    CHECK_THROWS(remo::barrier(node, "region"), remo::errc::exists);
    std::string what;
    try {
        region.write(0, 60, "12345678");
    } catch (const remo::error &e) {
        what = e.what();
        CHECK(what == "EINVAL: " + e.sentence() && e.sentence() == remo_last_error());
    }
    CHECK(!what.empty());

    /* With an error code, the call throws no exception, and a success clears the code. */
    std::error_code result = remo::errc::timed_out;
    CHECK(region.read<std::uint64_t>(0, 64, result) == 0 && result == remo::errc::invalid_argument);
    region.read<std::uint64_t>(0, 0, result);
    CHECK(!result);
    remo::region none(node, "no/name", 64, {}, result);
    CHECK(result == remo::errc::invalid_argument && !none);
    remo_config config{};
    config.fabric = "pigeons";
    CHECK_THROWS(remo::node{config}, remo::errc::invalid_argument);
    CHECK(std::strstr(remo_last_error(), "pigeons"));
    remo::node empty(config, result);
    CHECK(result && !empty);
    remo::future<std::uint64_t> failed = region.read_async<std::uint64_t>(0, 1 << 20, result);
    CHECK(result && failed.is_ready());
    CHECK_THROWS(failed.get(), remo::errc::invalid_argument);
    all.wait(patience); /* no node leaves while a peer uses its region */
}

void test_moves(remo::node &node) {
    static_assert(std::is_nothrow_move_constructible_v<remo::node>);
    static_assert(std::is_nothrow_move_assignable_v<remo::kv>);
    static_assert(!std::is_copy_constructible_v<remo::kv>);
    static_assert(!std::is_move_constructible_v<remo::ack>);
    static_assert(std::is_nothrow_copy_constructible_v<remo::error>);
    remo::barrier all(node, "all");
    remo::atomic_var first(node, "word"), second;
    first.channel().wait(patience);
    remo_atomic_var *object = first.get();
    CHECK(first && !second);
    second = std::move(first);
    CHECK(!first && second.get() == object); // NOLINT: a handle that was moved from is empty
    CHECK_THROWS(first.fetch_add(0, 1), remo::errc::invalid_argument);
    second.fetch_add(0, 1);
    remo::atomic_var third(std::move(second));
    all.wait(patience);
    CHECK(third.load() == node.size());
    all.wait(patience);
    /* An assignment closes the object that the variable had: the name is free again. */
    third = remo::atomic_var();
    remo::atomic_var again(node, "word");
    CHECK(again);
    again.close();
    again.close();
    CHECK(!again);
    all.wait(patience);
}

/* Threads of all nodes add to a word without atomics; the sum is right only with mutual exclusion. */
void test_exclusion(remo::node &node) {
    constexpr std::uint64_t rounds = 100;
    constexpr int threads_per_node = 2;
    remo::barrier all(node, "all");
    remo::lock_table locks(node, "locks");
    remo::region region(node, "region", 64);
    node.root().wait(patience);
    remo::mutex mutex(locks);
    auto work = [&] {
        for (std::uint64_t i = 0; i < rounds; i++) {
            std::lock_guard guard(mutex);
            region.write(0, 0, remo::object_bytes(region.read<std::uint64_t>(0, 0) + 1));
        }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < threads_per_node; i++)
        threads.emplace_back(work);
    for (std::thread &thread : threads)
        thread.join();
    CHECK(!mutex.release_error());
    all.wait(patience);
    CHECK(region.read<std::uint64_t>(0, 0) == rounds * threads_per_node * node.size());
    all.wait(patience);

    /* A lock that is held: try_lock fails, a timed try ends, and unique_lock releases it. */
    std::unique_lock lock(mutex, std::defer_lock);
    if (node.rank() == 0)
        lock.lock();
    all.wait(patience);
    if (node.rank() != 0)
        CHECK(!lock.try_lock() && !lock.try_lock_for(10ms));
    all.wait(patience);
    if (node.rank() == 0)
        lock.unlock();
    all.wait(patience);
    CHECK(lock.try_lock_for(patience));
    lock.unlock();
    mutex.unlock(); /* not held: no exception reports it */
    CHECK(mutex.release_error() == remo::errc::not_permitted);
    all.wait(patience);
}

/* The last node fails while it holds three locks; the other nodes detect it in three ways. The barriers
 * exclude the last node. */
void test_owner_dead(remo::node &node) {
    std::uint32_t victim = node.size() - 1;
    remo_lock_options options{};
    options.count = 3;
    remo::lock_table locks(node, "locks", options);
    remo::atomic_var repairs(node, "repairs");
    remo::barrier all(node, "all");
    node.root().wait(patience);
    for (std::uint32_t i = 0; i < options.count && node.rank() == victim; i++)
        CHECK(locks.acquire(i) == remo::acquired::clean);
    all.wait(patience);
    crash_last(node);

    remo_barrier_options survivors{};
    for (std::uint32_t i = 0; i < victim; i++)
        remo_nodeset_add(&survivors.participants, i);
    remo::barrier rest(node, "rest", survivors);

    remo::mutex repaired(locks, 0, remo::fence_scope::thread, [&] { repairs.fetch_add(0, 1); });
    { std::lock_guard guard(repaired); }
    rest.wait(patience);
    CHECK(repairs.load() == 1);

    if (node.rank() == 0) {
        CHECK(locks.acquire(1, patience) == remo::acquired::owner_dead);
        locks.consistent(1);
        locks.release(1);
    }
    rest.wait(patience);
    CHECK(locks.acquire(1, patience) == remo::acquired::clean);
    locks.release(1, remo::fence_scope::none);

    remo::mutex careless(locks, 2);
    if (node.rank() == 0)
        CHECK_THROWS(careless.lock(), remo::errc::owner_dead);
    rest.wait(patience);
    CHECK_THROWS(std::lock_guard guard(careless), remo::errc::not_recoverable);
    /* The other node holds the lock for a moment, and gets the same error. */
    CHECK_THROWS(
        [&] {
            while (!careless.try_lock())
                continue;
        }(),
        std::errc::state_not_recoverable);
    rest.wait(patience);
}

/* A repair function that fails leaves the lock not recoverable, and its exception reaches the caller. */
void test_repair_fails(remo::node &node) {
    remo::lock_table locks(node, "locks");
    remo::barrier all(node, "all");
    node.root().wait(patience);
    std::uint32_t victim = node.size() - 1;
    if (node.rank() == victim)
        CHECK(locks.acquire(0) == remo::acquired::clean);
    all.wait(patience);
    crash_last(node);
    remo::mutex mutex(locks, 0, remo::fence_scope::none, [] { throw std::domain_error("cannot repair"); });
    bool was_lost = false;
    try {
        std::lock_guard guard(mutex);
    } catch (const std::domain_error &) {
        was_lost = true;
    } catch (const remo::error &e) {
        was_lost = e.code() == remo::errc::not_recoverable;
    }
    CHECK(was_lost);
    std::error_code code;
    CHECK(locks.acquire(0, patience, code) == remo::acquired::no && code == remo::errc::not_recoverable);
    /* The home must not leave before the other nodes have tried. */
    remo_barrier_options survivors{};
    for (std::uint32_t i = 0; i < victim; i++)
        remo_nodeset_add(&survivors.participants, i);
    remo::barrier rest(node, "rest", survivors);
    rest.wait(patience);
}

/* A participant fails: a wait ends with host_down, reported also by an error code. */
void test_peer_fails(remo::node &node) {
    remo::barrier all(node, "all");
    all.wait(patience);
    crash_last(node);
    CHECK_THROWS(all.wait(patience), remo::errc::host_down);
    std::error_code code;
    all.wait(patience, code);
    CHECK(code == remo::errc::host_down);
    CHECK(node.peer(node.size() - 1) == remo::peer_state::dead);
}

/* The callback gets each join and the failure, also after the node has moved. */
void test_on_peer() {
    std::atomic<std::uint32_t> joined{0}, failed{0};
    remo::node first(remo::config{}, [&](std::uint32_t, remo::peer_state state) {
        (state == remo::peer_state::up ? joined : failed)++;
    });
    remo::node node = std::move(first);
    CHECK(joined == node.size() - 1 && failed == 0);
    crash_last(node);
    while (failed != 1)
        std::this_thread::sleep_for(1ms);
    remo_barrier_options survivors{};
    for (std::uint32_t i = 0; i < node.size() - 1; i++)
        remo_nodeset_add(&survivors.participants, i);
    remo::barrier(node, "rest", survivors).wait(patience);
}

/* Stop a process, and return when all its threads have stopped. */
void pause_process(pid_t process) {
    kill(process, SIGSTOP);
    for (const auto &thread :
         std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task"))
        for (std::string status; status.find(") T ") == std::string::npos;)
            std::getline(std::ifstream(thread.path() / "stat"), status);
}

/* The block of a guard has written to a node that pauses: release() reports that the lock is still held, and
 * the end of the block returns only when the lock is released. */
void test_lock_held() {
    remo::config config{};
    /* Only the release of rank 0 may time out: the barrier of rank 2 needs the paused node too. */
    config.op_timeout_ns = std::getenv("REMO_RANK") == std::string("0") ? REMO_SECONDS(5) : REMO_SECONDS(100);
    remo::node node(config);
    remo::barrier all(node, "all");
    remo::lock_table locks(node, "locks");
    remo_atomic_var_options options{};
    options.count = node.size();
    options.place = REMO_ATOMIC_VAR_STRIPED;
    remo::atomic_var pids(node, "pids", options);
    remo::region data(node, "data", 64);
    node.root().wait(patience);
    pids.store(node.rank(), static_cast<std::uint64_t>(getpid()));
    all.wait(patience);
    remo::mutex mutex(locks);
    if (node.rank() == 0) {
        auto paused = static_cast<pid_t>(pids.load(1));
        /* Resume the node while unlock() repeats the release, or after a failure of the test. */
        std::atomic<bool> has_failed{false};
        std::thread resume([&] {
            while (mutex.release_error() != remo::errc::would_retry && !has_failed)
                std::this_thread::sleep_for(1ms);
            kill(paused, SIGCONT);
        });
        try {
            remo::guard guard(mutex);
            data.write(1, 0, "one");
            node.fence(remo::fence_scope::thread);
            pause_process(paused);
            data.write(1, 0, "two");
            CHECK_THROWS(guard.release(), remo::errc::would_retry);
            CHECK(guard.owns_lock() && !mutex.release_error());
        } catch (...) {
            has_failed = true;
            resume.join();
            throw;
        }
        resume.join();
        CHECK(!mutex.release_error());
    }
    all.wait(patience);
    {
        remo::guard guard(mutex);
        std::array<char, 3> text{};
        data.read(1, 0, text);
        CHECK(std::string(text.data(), 3) == "two");
        guard.release();
        CHECK_THROWS(guard.release(), remo::errc::not_permitted);
    }
    all.wait(patience);
}

const area areas[] = {
    {"codes", test_codes},
    {"moves", test_moves},
    {"exclusion", test_exclusion},
    {"owner_dead", test_owner_dead},
    {"peer_fails", test_peer_fails},
    {"repair_fails", test_repair_fails},
    {"on_peer", nullptr, test_on_peer},
    {"lock_held", nullptr, test_lock_held},
};

} // namespace

int main(int argc, char **argv) {
    return run_area(argc, argv, areas);
}
