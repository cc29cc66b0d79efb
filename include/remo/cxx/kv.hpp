/* cxx/kv.hpp - the distributed map. Part of <remo/remo.hpp>. Contract of each call: <remo/kv.h>. */
#pragma once

#include <remo/cxx/iterator.hpp>
#include <remo/cxx/node.hpp>
#include <remo/kv.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

namespace remo {

struct kv_entry {
    std::string key, value;
};

/* An iteration over all keys; see remo_kv_next. A key that is present from the first call to the last is
 * returned exactly once. A key that is inserted or deleted meanwhile is returned at most once for each
 * insert. The cursor refers to the C object of the map, which must stay open. */
class kv_cursor {
  public:
    explicit kv_cursor(remo_kv *kv) noexcept : kv_(kv) {
    }
    /* Return the next key and its value, or std::nullopt after the last one. An unreachable entry is an error
     * (host_down, not_connected); the next call continues after it. */
    std::optional<kv_entry> next(on_error errors = {}) {
        kv_entry entry{std::string(key_room, '\0'), std::string(value_room, '\0')};
        std::size_t key_bytes = 0, value_bytes = 0;
        int rc = read(entry, key_bytes, value_bytes);
        while (rc == -EMSGSIZE && (key_bytes > entry.key.size() || value_bytes > entry.value.size())) {
            entry.key.resize(std::max(key_bytes, entry.key.size()));
            entry.value.resize(std::max(value_bytes, entry.value.size()));
            rc = read(entry, key_bytes, value_bytes);
        }
        if (!errors.check(rc == -ENOENT ? 0 : rc) || rc == -ENOENT)
            return std::nullopt;
        entry.key.resize(key_bytes);
        entry.value.resize(value_bytes);
        return entry;
    }

    /* For range-based loops. They end with an exception at the first unreachable entry. */
    using iterator = detail::cursor_iterator<kv_cursor, kv_entry>;
    iterator begin() {
        return iterator(*this);
    }
    iterator end() const noexcept {
        return iterator();
    }

  private:
    /* The initial sizes; a longer key or value is read again. */
    static constexpr std::size_t key_room = 64, value_room = 256;

    int read(kv_entry &entry, std::size_t &key_bytes, std::size_t &value_bytes) {
        return remo_kv_next(kv_, &cursor_, entry.key.data(), entry.key.size(), &key_bytes, entry.value.data(),
                            entry.value.size(), &value_bytes);
    }

    remo_kv *kv_;
    remo_kv_cursor cursor_ = REMO_KV_CURSOR_INIT;
};

/* A distributed hash map of bytes to bytes. An absent or present key is a result, never an error. */
class kv : public detail::object<remo_kv, remo_kv_close, remo_kv_channel> {
  public:
    kv() noexcept = default;
    kv(channel_ref parent, const std::string &name, const remo_kv_options &options = {},
       on_error errors = {}) {
        open([&](remo_kv **k) { return remo_kv_open(parent.get(), name.c_str(), &options, k); }, errors);
    }
    /* Copy the value of `key` to `into`, and return its size; std::nullopt if the key is absent. */
    std::optional<std::size_t> get(const_bytes key, bytes into, on_error errors = {}) {
        std::size_t size = 0;
        bool found = unless(errors, -ENOENT, [&](remo_kv *k) {
            return remo_kv_get(k, key.data(), key.size(), into.data(), into.size(), &size);
        });
        return found ? std::optional(size) : std::nullopt;
    }
    /* As above, in a new string. */
    std::optional<std::string> get(const_bytes key, on_error errors = {}) {
        std::string value(first_room, '\0');
        std::size_t size = 0;
        bool found = unless(errors, -ENOENT, [&](remo_kv *k) {
            int rc = read(k, key, value, size);
            for (; rc == -EMSGSIZE && size > value.size(); rc = read(k, key, value, size))
                value.resize(size);
            return rc;
        });
        if (!found)
            return std::nullopt;
        value.resize(size);
        return value;
    }
    /* Return false if the key is present. */
    bool insert(const_bytes key, const_bytes value, on_error errors = {}) {
        return unless(errors, -EEXIST, [&](remo_kv *k) {
            return remo_kv_insert(k, key.data(), key.size(), value.data(), value.size());
        });
    }
    /* Return false if the key is absent. */
    bool update(const_bytes key, const_bytes value, on_error errors = {}) {
        return unless(errors, -ENOENT, [&](remo_kv *k) {
            return remo_kv_update(k, key.data(), key.size(), value.data(), value.size());
        });
    }
    /* Insert the key, or replace its value. */
    void put(const_bytes key, const_bytes value, on_error errors = {}) {
        call(errors,
             [&](remo_kv *k) { return remo_kv_put(k, key.data(), key.size(), value.data(), value.size()); });
    }
    /* Add to a value of 8 bytes, and return the old value; std::nullopt if the key is absent. */
    std::optional<std::uint64_t> fetch_add(const_bytes key, std::uint64_t delta, on_error errors = {}) {
        std::uint64_t old = 0;
        bool found = unless(errors, -ENOENT, [&](remo_kv *k) {
            return remo_kv_fetch_add(k, key.data(), key.size(), delta, &old);
        });
        return found ? std::optional(old) : std::nullopt;
    }
    /* Replace the value if it equals `expected`. Return false, without a change, if the value differs or the
     * key is absent. */
    bool compare_put(const_bytes key, const_bytes expected, const_bytes value, on_error errors = {}) {
        return unless(errors, -ENOENT, [&](remo_kv *k) {
            int rc = remo_kv_compare_put(k, key.data(), key.size(), expected.data(), expected.size(),
                                         value.data(), value.size());
            return rc == -ESTALE ? -ENOENT : rc;
        });
    }
    /* All keys with their values: for (const auto &[key, value] : map.entries()). */
    kv_cursor entries() const noexcept {
        return kv_cursor(get());
    }
    /* Return false if the key is absent. */
    bool erase(const_bytes key, on_error errors = {}) {
        return unless(errors, -ENOENT, [&](remo_kv *k) { return remo_kv_delete(k, key.data(), key.size()); });
    }
    /* Return the number of keys in the index of this node; see remo_kv_count. */
    std::uint64_t count() const noexcept {
        return remo_kv_count(get());
    }

    /* A window of operations: `op`, its key and its value stay in place until its status is other than
     * -EINPROGRESS. The status of an operation is in op.status. See <remo/kv.h>. */
    void start(remo_kv_op &op, on_error errors = {}) {
        call(errors, [&](remo_kv *k) { return remo_kv_start(k, &op); });
    }
    /* Advance the operations of this thread, and return the number in flight. */
    std::uint32_t poll(on_error errors = {}) {
        int count = 0;
        call(errors, [&](remo_kv *k) { return count = remo_kv_poll(k); });
        return static_cast<std::uint32_t>(std::max(count, 0));
    }
    /* Wait until `op` is complete, and return its status: 0, -ENOENT or -EEXIST, or another -errno. */
    int wait(remo_kv_op &op) {
        return remo_kv_wait(get(), &op);
    }

    using object::get;

  private:
    static constexpr std::size_t first_room = 1024;

    static int read(remo_kv *k, const_bytes key, std::string &value, std::size_t &size) {
        size = 0;
        return remo_kv_get(k, key.data(), key.size(), value.data(), value.size(), &size);
    }
};

} // namespace remo
