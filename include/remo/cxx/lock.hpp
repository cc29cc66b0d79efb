/* cxx/lock.hpp - locks, std::lock_guard over locks, and barriers. Part of <remo/remo.hpp>.
 * Contract of each call: <remo/lock.h>, <remo/barrier.h>. */
#pragma once

#include <remo/barrier.h>
#include <remo/cxx/node.hpp>
#include <remo/lock.h>

#include <atomic>
#include <exception>
#include <functional>

namespace remo {

/* The result of an acquire. */
enum class acquired {
    no,         /* not acquired: the call reported an error in its std::error_code */
    clean,      /* acquired; the previous holder released the lock */
    owner_dead, /* acquired; the previous holder failed: repair the protected data, call consistent() */
};

/* A table of locks that nodes and threads acquire by index. */
class lock_table : public detail::object<remo_lock, remo_lock_close, remo_lock_channel> {
  public:
    lock_table() noexcept = default;
    lock_table(channel_ref parent, const std::string &name, const remo_lock_options &options = {},
               on_error errors = {}) {
        open([&](remo_lock **l) { return remo_lock_open(parent.get(), name.c_str(), &options, l); }, errors);
    }
    std::uint32_t home(std::uint32_t index) const noexcept {
        return remo_lock_home(get(), index);
    }
    /* Acquire lock `index`. The failure of the previous holder is a result. Errors: timed_out, host_down,
     * not_connected, not_recoverable, lock_held_by_caller, invalid_argument. */
    [[nodiscard]] acquired acquire(std::uint32_t index, timeout time = forever, on_error errors = {}) {
        acquired how = acquired::clean;
        bool done = call(errors, [&](remo_lock *l) {
            int rc = remo_lock_acquire(l, index, detail::timeout_ns(time));
            if (rc != -EOWNERDEAD)
                return rc;
            how = acquired::owner_dead;
            return 0;
        });
        return done ? how : acquired::no;
    }
    /* Release lock `index` after a fence of this scope, in the thread that acquired it. */
    void release(std::uint32_t index, fence_scope fence = fence_scope::thread, on_error errors = {}) {
        call(errors, [&](remo_lock *l) { return remo_lock_release(l, index, remo_fence_scope(fence)); });
    }
    /* After acquired::owner_dead: declare the protected data repaired. */
    void consistent(std::uint32_t index, on_error errors = {}) {
        call(errors, [&](remo_lock *l) { return remo_lock_consistent(l, index); });
    }
};

/* One lock of a table with the interface of a standard mutex, for std::lock_guard, std::unique_lock and
 * std::scoped_lock. unlock() releases after a fence of the scope given here (default: thread).
 *
 * Failed holder: lock() calls `repair`, and then marks the lock consistent. If `repair` is empty or throws,
 *          lock() makes the lock not recoverable for every node, and throws (errc::owner_dead or the
 *          exception of `repair`). So no critical section runs on inconsistent data. A program that cannot
 *          repair inside a function calls lock_table::acquire.
 * Release: unlock() does not throw, because std::lock_guard calls it in a destructor, where an exception
 *          would terminate the program after the failure of a peer. While writes may still arrive at a paused
 *          node, the lock stays held (errc::would_retry), and unlock() repeats the release until the node
 *          answers or has failed. release_error() has the code of the last unlock() that lost a write or the
 *          home, and errc::would_retry during repetitions. release() and remo::guard report errors, and limit
 *          the wait.
 * Threads: any number of threads may share one mutex, like a std::timed_mutex. It refers to the table. */
class mutex {
  public:
    explicit mutex(lock_table &table, std::uint32_t index = 0, fence_scope fence = fence_scope::thread,
                   std::function<void()> repair = {})
        : table_(table), index_(index), fence_(fence), repair_(std::move(repair)) {
    }
    mutex(const mutex &) = delete;
    mutex &operator=(const mutex &) = delete;

    void lock() {
        enter(table_.acquire(index_));
    }
    /* Return false if the lock is held. */
    bool try_lock() {
        return try_lock_for(timeout::zero());
    }
    /* Return false if the lock was not acquired within `time`. */
    template <class Rep, class Period> bool try_lock_for(std::chrono::duration<Rep, Period> time) {
        std::error_code code;
        acquired how = table_.acquire(index_, std::chrono::duration_cast<timeout>(time), code);
        if (code == errc::timed_out)
            return false;
        if (code)
            throw error(code, remo_last_error());
        enter(how);
        return true;
    }
    template <class Clock, class Duration>
    bool try_lock_until(std::chrono::time_point<Clock, Duration> deadline) {
        return try_lock_for(deadline - Clock::now());
    }
    void unlock() noexcept {
        int before = release_error_.load(), repeating = EAGAIN;
        std::error_code code;
        for (release(code); code == errc::would_retry; release(code))
            release_error_.store(repeating);
        if (code)
            release_error_.store(code.value());
        else
            release_error_.compare_exchange_strong(repeating, before);
    }
    /* Release the lock, and report a failure. errc::would_retry, after op_timeout_ns: the lock is still
     * held; release it again, and do not use the protected data in between. not_permitted and
     * invalid_argument: without effect. Other errors: the lock is released, and its home failed or a write
     * under the lock was lost. */
    void release(on_error errors = {}) {
        table_.release(index_, fence_, errors);
    }
    /* Return the error of the last unlock() that failed; none if every unlock() succeeded. */
    std::error_code release_error() const noexcept {
        int code = release_error_.load();
        return code ? std::error_code(code, category()) : std::error_code();
    }

  private:
    void enter(acquired how) {
        if (how != acquired::owner_dead)
            return;
        std::exception_ptr thrown;
        try {
            if (!repair_)
                throw error(make_error_code(errc::owner_dead),
                            "the last holder of lock " + std::to_string(index_)
                                + " failed and may have left its data half changed; give the mutex a repair "
                                  "function, or use lock_table::acquire");
            repair_();
            table_.consistent(index_);
            return;
        } catch (...) {
            thrown = std::current_exception();
        }
        unlock(); /* after the catch: it may run other tasks of the thread */
        std::rethrow_exception(thrown);
    }

    lock_table &table_;
    std::uint32_t index_;
    fence_scope fence_;
    std::function<void()> repair_;
    std::atomic<int> release_error_{0};
};

/* std::lock_guard with a release that reports its failure. To detect a lost write under the lock, call
 * release() at the end of the block. */
class [[nodiscard]] guard {
  public:
    explicit guard(mutex &locked) : mutex_(&locked) {
        locked.lock();
    }
    guard(const guard &) = delete;
    guard &operator=(const guard &) = delete;
    /* Unlock the mutex if the lock is still held. */
    ~guard() {
        if (mutex_)
            mutex_->unlock();
    }
    /* Call mutex::release(). Only after errc::would_retry is the lock still held. */
    void release(on_error errors = {}) {
        if (!mutex_) {
            errors.fail(-EPERM, "cannot release a lock that this guard has released");
            return;
        }
        std::error_code code;
        mutex_->release(code);
        if (code != errc::would_retry)
            mutex_ = nullptr;
        if (code)
            errors.fail(-code.value(), nullptr);
        else
            errors.check(0);
    }
    bool owns_lock() const noexcept {
        return mutex_ != nullptr;
    }

  private:
    mutex *mutex_;
};

/* A barrier of all participants. */
class barrier : public detail::object<remo_barrier, remo_barrier_close, remo_barrier_channel> {
  public:
    barrier() noexcept = default;
    barrier(channel_ref parent, const std::string &name, const remo_barrier_options &options = {},
            on_error errors = {}) {
        open([&](remo_barrier **b) { return remo_barrier_open(parent.get(), name.c_str(), &options, b); },
             errors);
    }
    void wait(timeout time = forever, on_error errors = {}) {
        call(errors, [&](remo_barrier *b) { return remo_barrier_wait(b, detail::timeout_ns(time)); });
    }
};

} // namespace remo
