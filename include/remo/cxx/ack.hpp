/* cxx/ack.hpp - operations in flight. Part of <remo/remo.hpp>.
 *
 * Model:  an `ack` counts its incomplete operations; a `future<T>` has one operation and its result. See
 *         <remo/ack.h>.
 * Life:   the destructor cancels. The operations continue, but no longer write to the ack, or to results or
 *         buffers of the caller. Acks and futures cannot be moved, because the library holds their address;
 *         functions construct the future that they return in place.
 * Threads: one thread starts operations; one thread at a time tests or waits.
 */
#pragma once

#include <remo/ack.h>
#include <remo/cxx/error.hpp>

#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <type_traits>

namespace remo {

class ack {
  public:
    ack() noexcept = default;
    ack(const ack &) = delete;
    ack &operator=(const ack &) = delete;
    ~ack() {
        remo_ack_cancel(&ack_);
    }
    /* Return whether all operations are complete. Does not block. Errors: that of the first operation that
     * failed. */
    bool test(on_error errors = {}) {
        int rc = remo_ack_test(&ack_);
        return rc == -EINPROGRESS ? (errors.check(0), false) : (errors.check(rc), true);
    }
    /* Wait until all operations are complete. Errors: timed_out, or that of the first failed operation. */
    void wait(timeout time = forever, on_error errors = {}) {
        errors.check(remo_ack_wait(&ack_, detail::timeout_ns(time)));
    }
    /* Move the operations of `from` to this ack; see remo_ack_join. */
    void join(ack &from) noexcept {
        remo_ack_join(&ack_, &from.ack_);
    }
    void cancel() noexcept {
        remo_ack_cancel(&ack_);
    }
    remo_ack *get() noexcept {
        return &ack_;
    }

  private:
    remo_ack ack_ = REMO_ACK_INIT;
};

/* Wait until one of `acks` is complete, and return its index. `acks` is a contiguous container of remo_ack *,
 * from ack::get() and future::handle(). Entries that are nullptr are skipped. The ack itself reports a
 * failure of its operation. Errors: timed_out. */
template <class Acks> std::size_t wait_any(const Acks &acks, timeout time = forever, on_error errors = {}) {
    std::uint32_t index = 0;
    errors.check(remo_ack_wait_any(std::data(acks), static_cast<std::uint32_t>(std::size(acks)),
                                   detail::timeout_ns(time), &index));
    return index;
}
inline std::size_t wait_any(std::initializer_list<remo_ack *> acks, timeout time = forever,
                            on_error errors = {}) {
    return wait_any<>(acks, time, errors);
}

/* One operation in flight, with a result of type T. */
template <class T> class future {
    static_assert(std::is_trivially_copyable_v<T>, "the network fills the result byte by byte");

  public:
    /* For objects: `start(T *result, remo_ack *)` starts the operation and returns 0 or -errno. */
    template <class Start> future(Start &&start, on_error errors) : rc_(start(&value_, ack_.get())) {
        errors.check(rc_);
    }
    future(const future &) = delete;
    future &operator=(const future &) = delete;

    /* Return whether get() returns without waiting. Only get() reports a failure. */
    bool is_ready() {
        return rc_ < 0 || remo_ack_test(ack_.get()) != -EINPROGRESS;
    }
    /* Wait up to `time`, and return the result. Errors: timed_out, or that of the operation. */
    T get(timeout time = forever, on_error errors = {}) {
        int rc = rc_ < 0 ? rc_ : remo_ack_wait(ack_.get(), detail::timeout_ns(time));
        return errors.check(rc) ? value_ : T{};
    }
    /* Return the ack, for wait_any. The future owns it. */
    remo_ack *handle() noexcept {
        return ack_.get();
    }

  private:
    T value_{}; /* before the ack, so destroyed after the ack has cancelled */
    ack ack_;
    int rc_;
};

} // namespace remo
