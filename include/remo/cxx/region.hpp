/* cxx/region.hpp - regions and atomic variables. Part of <remo/remo.hpp>.
 * Contract of each call: <remo/region.h>, <remo/atomic_var.h>. */
#pragma once

#include <remo/atomic_var.h>
#include <remo/cxx/node.hpp>
#include <remo/region.h>

namespace remo {

/* A range of network memory on each participant. */
class region : public detail::object<remo_region, remo_region_close, remo_region_channel> {
  public:
    region() noexcept = default;
    region(channel_ref parent, const std::string &name, std::uint64_t size_bytes,
           const remo_region_options &options = {}, on_error errors = {}) {
        open(
            [&](remo_region **r) {
                return remo_region_open(parent.get(), name.c_str(), size_bytes, &options, r);
            },
            errors);
    }
    std::uint64_t size_bytes() const noexcept {
        return remo_region_bytes(get());
    }
    /* Return this node's share, empty if it provides none. Peers may modify it concurrently. */
    bytes local() const noexcept {
        void *data = remo_region_local(get());
        return bytes(data, data ? static_cast<std::size_t>(size_bytes()) : 0);
    }
    remo_addr address(std::uint32_t node, std::uint64_t offset, on_error errors = {}) const {
        remo_addr address{};
        call(errors, [&](remo_region *r) { return remo_region_address(r, node, offset, &address); });
        return address;
    }

    /* Read; blocks until the bytes are in `into`. */
    void read(std::uint32_t node, std::uint64_t offset, bytes into, on_error errors = {}) {
        start_read(node, offset, into, nullptr, errors);
    }
    /* Read one object. */
    template <class T> T read(std::uint32_t node, std::uint64_t offset, on_error errors = {}) {
        T value{};
        read(node, offset, object_bytes(value), errors);
        return value;
    }
    /* Start a read. Keep `into` in place until `done` is complete. */
    void read(std::uint32_t node, std::uint64_t offset, bytes into, ack &done, on_error errors = {}) {
        start_read(node, offset, into, done.get(), errors);
    }
    /* Start a read of one object. */
    template <class T> future<T> read_async(std::uint32_t node, std::uint64_t offset, on_error errors = {}) {
        return future<T>(
            [&](T *value, remo_ack *done) {
                return remo_region_read(get(), node, offset, value, sizeof *value, done);
            },
            errors);
    }

    /* Write. `from` may be reused after the return. The next fence waits for the write and reports its
     * error. */
    void write(std::uint32_t node, std::uint64_t offset, const_bytes from, on_error errors = {}) {
        start_write(node, offset, from, 0, nullptr, errors);
    }
    /* Write, and notify the target when the data is placed. */
    void write_notify(std::uint32_t node, std::uint64_t offset, const_bytes from, on_error errors = {}) {
        start_write(node, offset, from, REMO_WRITE_NOTIFY, nullptr, errors);
    }
    /* Start a write; `from` is copied unless it is network memory of this node. */
    void write(std::uint32_t node, std::uint64_t offset, const_bytes from, ack &done, on_error errors = {}) {
        start_write(node, offset, from, 0, done.get(), errors);
    }

    /* Change a word of 8 bytes atomically, and return its old value. */
    std::uint64_t fetch_add(std::uint32_t node, std::uint64_t offset, std::uint64_t addend,
                            on_error errors = {}) {
        std::uint64_t old = 0;
        call(errors,
             [&](remo_region *r) { return remo_region_fetch_add(r, node, offset, addend, &old, nullptr); });
        return old;
    }
    std::uint64_t compare_swap(std::uint32_t node, std::uint64_t offset, std::uint64_t expected,
                               std::uint64_t desired, on_error errors = {}) {
        std::uint64_t old = 0;
        call(errors, [&](remo_region *r) {
            return remo_region_compare_swap(r, node, offset, expected, desired, &old, nullptr);
        });
        return old;
    }

  private:
    void start_read(std::uint32_t node, std::uint64_t offset, bytes into, remo_ack *done, on_error errors) {
        call(errors, [&](remo_region *r) {
            return remo_region_read(r, node, offset, into.data(), into.size(), done);
        });
    }
    void start_write(std::uint32_t node, std::uint64_t offset, const_bytes from, std::uint32_t flags,
                     remo_ack *done, on_error errors) {
        call(errors, [&](remo_region *r) {
            return remo_region_write(r, node, offset, from.data(), from.size(), flags, done);
        });
    }
};

/* Words that any node reads and changes atomically. */
class atomic_var : public detail::object<remo_atomic_var, remo_atomic_var_close, remo_atomic_var_channel> {
  public:
    atomic_var() noexcept = default;
    atomic_var(channel_ref parent, const std::string &name, const remo_atomic_var_options &options = {},
               on_error errors = {}) {
        open(
            [&](remo_atomic_var **v) {
                return remo_atomic_var_open(parent.get(), name.c_str(), &options, v);
            },
            errors);
    }
    std::uint64_t load(std::uint64_t index = 0, on_error errors = {}) {
        std::uint64_t value = 0;
        call(errors, [&](remo_atomic_var *v) { return remo_atomic_var_load(v, index, &value, nullptr); });
        return value;
    }
    void store(std::uint64_t index, std::uint64_t value, on_error errors = {}) {
        call(errors, [&](remo_atomic_var *v) { return remo_atomic_var_store(v, index, value); });
    }
    /* Change word `index`, and return its old value. */
    std::uint64_t fetch_add(std::uint64_t index, std::uint64_t addend, on_error errors = {}) {
        std::uint64_t old = 0;
        call(errors,
             [&](remo_atomic_var *v) { return remo_atomic_var_fetch_add(v, index, addend, &old, nullptr); });
        return old;
    }
    std::uint64_t exchange(std::uint64_t index, std::uint64_t value, on_error errors = {}) {
        std::uint64_t old = 0;
        call(errors, [&](remo_atomic_var *v) { return remo_atomic_var_exchange(v, index, value, &old); });
        return old;
    }
    /* As above. The call has swapped if the result is `expected`. */
    std::uint64_t compare_swap(std::uint64_t index, std::uint64_t expected, std::uint64_t desired,
                               on_error errors = {}) {
        std::uint64_t old = 0;
        call(errors, [&](remo_atomic_var *v) {
            return remo_atomic_var_compare_swap(v, index, expected, desired, &old, nullptr);
        });
        return old;
    }
    /* Start an operation, and return its future. */
    future<std::uint64_t> load_async(std::uint64_t index, on_error errors = {}) {
        return future<std::uint64_t>(
            [&](std::uint64_t *value, remo_ack *done) {
                return remo_atomic_var_load(get(), index, value, done);
            },
            errors);
    }
    future<std::uint64_t> fetch_add_async(std::uint64_t index, std::uint64_t addend, on_error errors = {}) {
        return future<std::uint64_t>(
            [&](std::uint64_t *old, remo_ack *done) {
                return remo_atomic_var_fetch_add(get(), index, addend, old, done);
            },
            errors);
    }
};

} // namespace remo
