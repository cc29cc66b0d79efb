/* cxx/tx.hpp - hash tables, and transactions on tables and queues. Part of <remo/remo.hpp>.
 * Contract of each call: <remo/structure.h>, <remo/table.h>, <remo/tx.h>, <remo/tx_queue.h>.
 *
 *     remo::table accounts(node, "accounts", options);
 *     remo::tx_space space(node, "bank", {accounts});
 *     node.root().wait();
 *     remo::transaction tx(space);
 *     tx.run([&](remo::transaction &t) {
 *         std::int64_t balance = t.read<std::int64_t>(accounts, "Ada").value_or(0);
 *         t.put(accounts, "Ada", remo::object_bytes(balance += 5));
 *     });
 */
#pragma once

#include <remo/cxx/node.hpp>
#include <remo/table.h>
#include <remo/tx.h>
#include <remo/tx_queue.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace remo {

/* A reference to a structure: that of a table or tx_queue, or one that the program has opened itself. */
class structure_ref {
  public:
    structure_ref(remo_structure *structure) noexcept : structure_(structure) {
    }
    remo_structure *get() const noexcept {
        return structure_;
    }

  private:
    remo_structure *structure_;
};

namespace detail {
inline remo_channel *table_channel(remo_table *table) noexcept {
    return remo_structure_channel(remo_table_structure(table));
}
inline remo_channel *tx_queue_channel(remo_tx_queue *queue) noexcept {
    return remo_structure_channel(remo_tx_queue_structure(queue));
}
/* Room for every value of an item. */
struct item_value {
    char data[REMO_ITEM_BYTES_MAX];
};
} // namespace detail

/* A distributed hash table. An absent or present key is a result, never an error. */
class table : public detail::object<remo_table, remo_table_close, detail::table_channel> {
  public:
    table() noexcept = default;
    table(channel_ref parent, const std::string &name, const remo_table_options &options = {},
          on_error errors = {}) {
        open([&](remo_table **t) { return remo_table_open(parent.get(), name.c_str(), &options, t); },
             errors);
    }
    structure_ref structure() const noexcept {
        return structure_ref(remo_table_structure(get()));
    }
    operator structure_ref() const noexcept {
        return structure();
    }
    /* Copy the value of `key` to `into`, and return its size; std::nullopt if the key is absent. */
    std::optional<std::size_t> get(const_bytes key, bytes into, on_error errors = {}) {
        std::size_t size = 0;
        bool found = unless(errors, -ENOENT, [&](remo_table *t) {
            return remo_structure_lookup(remo_table_structure(t), key.data(), key.size(), into.data(),
                                         into.size(), &size, nullptr);
        });
        return found ? std::optional(size) : std::nullopt;
    }
    /* As above, in a new string. */
    std::optional<std::string> get(const_bytes key, on_error errors = {}) {
        detail::item_value value;
        std::optional<std::size_t> size = get(key, bytes(value.data), errors);
        return size ? std::optional(std::string(value.data, *size)) : std::nullopt;
    }
    /* Return false if the key is present. */
    bool insert(const_bytes key, const_bytes value, on_error errors = {}) {
        return change(remo_structure_insert, key, value, -EEXIST, errors);
    }
    /* Return false if the key is absent. */
    bool update(const_bytes key, const_bytes value, on_error errors = {}) {
        return change(remo_structure_update, key, value, -ENOENT, errors);
    }
    /* Insert the key, or replace its value. */
    void put(const_bytes key, const_bytes value, on_error errors = {}) {
        change(remo_structure_put, key, value, 0, errors);
    }
    /* Return false if the key is absent. */
    bool erase(const_bytes key, on_error errors = {}) {
        return unless(errors, -ENOENT, [&](remo_table *t) {
            return remo_structure_delete(remo_table_structure(t), key.data(), key.size());
        });
    }
    /* Return the rank of the owner of a key. */
    std::uint32_t owner(const_bytes key) const noexcept {
        return remo_table_owner(get(), key.data(), key.size());
    }

    using object::get;

  private:
    template <class Function>
    bool change(Function function, const_bytes key, const_bytes value, int answer, on_error errors) {
        bool is_answer = false;
        bool done = call(errors, [&](remo_table *t) {
            int rc = function(remo_table_structure(t), key.data(), key.size(), value.data(), value.size());
            is_answer = rc != 0 && rc == answer;
            return is_answer ? 0 : rc;
        });
        return done && !is_answer;
    }
};

/* A FIFO queue, whose elements are pushed and popped by transactions. */
class tx_queue : public detail::object<remo_tx_queue, remo_tx_queue_close, detail::tx_queue_channel> {
  public:
    tx_queue() noexcept = default;
    tx_queue(channel_ref parent, const std::string &name, const remo_tx_queue_options &options = {},
             on_error errors = {}) {
        open([&](remo_tx_queue **q) { return remo_tx_queue_open(parent.get(), name.c_str(), &options, q); },
             errors);
    }
    structure_ref structure() const noexcept {
        return structure_ref(remo_tx_queue_structure(get()));
    }
    operator structure_ref() const noexcept {
        return structure();
    }
};

/* The structures that transactions use together: the same ones in the same order on all nodes. Destroy it
 * before them. */
class tx_space : public detail::object<remo_tx_space, remo_tx_space_close, remo_tx_space_channel> {
  public:
    tx_space() noexcept = default;
    tx_space(channel_ref parent, const std::string &name, const std::vector<structure_ref> &structures,
             on_error errors = {})
        : tx_space(parent, name, structures, REMO_TX_LATE, errors) {}
    /* The same, with REMO_TX_EARLY or REMO_TX_LATE: when transactions lock what they change. */
    tx_space(channel_ref parent, const std::string &name, const std::vector<structure_ref> &structures,
             remo_tx_locks locks, on_error errors = {}) {
        std::vector<remo_structure *> all;
        for (structure_ref structure : structures)
            all.push_back(structure.get());
        remo_tx_space_options options{};
        options.structures = all.data();
        options.structure_count = static_cast<std::uint32_t>(all.size());
        options.locks = locks;
        open([&](remo_tx_space **s) { return remo_tx_space_open(parent.get(), name.c_str(), &options, s); },
             errors);
    }
};

/* The result of a function of transaction::run, if it returns a value. */
enum class tx_step {
    commit,
    abort, /* end without changes; run returns false */
    wait   /* until a key that the transaction has read has changed, then run the function again */
};

enum class tx_fate {
    not_committed = REMO_TX_NOT_COMMITTED,
    committed = REMO_TX_COMMITTED,
    pending = REMO_TX_PENDING,
    unknown = REMO_TX_UNKNOWN,
};

/* A transaction object, for any number of transactions, one after another. One thread or task at a time uses
 * it. Destroy it before its space. */
class transaction : public detail::handle<remo_tx, remo_tx_close> {
  public:
    transaction() noexcept = default;
    explicit transaction(const tx_space &space, on_error errors = {}) {
        errors.check(remo_tx_open(space.get(), put_handle()));
    }

    /* Run `body(*this)` as a transaction, and commit; repeat it after a conflict, until `time` has passed.
     * Then the error is timed_out. `body` returns nothing, or a tx_step. Return whether the transaction is
     * committed; false: `body` has returned tx_step::abort, or there was an error.
     * `body` may run several times, even with values that are not consistent with each other. If it throws,
     * the transaction is aborted. If `check` then reports a conflict, `body` runs again; otherwise the
     * exception reaches the caller. `body` must not begin, commit, abort or wait. */
    template <class Body> bool run(Body &&body, timeout time = forever, on_error errors = {}) {
        running<std::remove_reference_t<Body>> state{*this, body, nullptr, false};
        bool done = call(errors, [&](remo_tx *tx) {
            int rc = remo_tx_run(tx, state.step, &state, detail::timeout_ns(time));
            return state.thrown || state.is_aborted ? 0 : rc;
        });
        if (state.thrown)
            std::rethrow_exception(state.thrown);
        return done && !state.is_aborted;
    }

    /* One attempt: begin, reads and changes, then commit, which returns false after a conflict: nothing has
     * changed. */
    void begin(on_error errors = {}) {
        call(errors, remo_tx_begin);
    }
    bool commit(on_error errors = {}) {
        return unless_conflict(errors, remo_tx_commit);
    }
    void abort() noexcept {
        remo_tx_abort(get());
    }
    /* Return whether all values that the transaction has read were current at one moment of this call. */
    bool check(on_error errors = {}) {
        return unless_conflict(errors, remo_tx_check);
    }
    /* End the transaction without its changes, and wait until a key that it has read may have changed; then
     * call `begin`, and repeat the reads. Return false if none has changed within `time`. */
    bool wait(timeout time = forever, on_error errors = {}) {
        return unless(errors, -ETIMEDOUT,
                      [&](remo_tx *tx) { return remo_tx_wait(tx, detail::timeout_ns(time)); });
    }
    /* Return the outcome of the last transaction, after an error of run or commit. It is `pending` only if it
     * is still not known when `time` has passed. */
    tx_fate settle(timeout time = forever, on_error errors = {}) {
        remo_tx_fate fate = REMO_TX_UNKNOWN;
        unless(errors, -ETIMEDOUT,
               [&](remo_tx *tx) { return remo_tx_settle(tx, detail::timeout_ns(time), &fate); });
        return static_cast<tx_fate>(fate);
    }
    /* Return the conflict of the last transaction, if it had one. */
    std::optional<remo_tx_conflict> last_conflict() const noexcept {
        remo_tx_conflict conflict{};
        return remo_tx_last_conflict(get(), &conflict) == 0 ? std::optional(conflict) : std::nullopt;
    }

    /* Copy the value of `key` to `into`, and return its size; std::nullopt if the key is absent. */
    std::optional<std::size_t> read(structure_ref structure, const_bytes key, bytes into,
                                    on_error errors = {}) {
        std::size_t size = 0;
        bool found = unless(errors, -ENOENT, [&](remo_tx *tx) {
            return remo_tx_read(tx, structure.get(), key.data(), key.size(), into.data(), into.size(), &size);
        });
        return found ? std::optional(size) : std::nullopt;
    }
    /* As above, in a new string. */
    std::optional<std::string> read(structure_ref structure, const_bytes key, on_error errors = {}) {
        detail::item_value value;
        std::optional<std::size_t> size = read(structure, key, bytes(value.data), errors);
        return size ? std::optional(std::string(value.data, *size)) : std::nullopt;
    }
    /* As the first two, for a key that the transaction will change: with early locks, lock it. */
    std::optional<std::size_t> read_for_update(structure_ref structure, const_bytes key, bytes into,
                                               on_error errors = {}) {
        std::size_t size = 0;
        bool found = unless(errors, -ENOENT, [&](remo_tx *tx) {
            return remo_tx_read_for_update(tx, structure.get(), key.data(), key.size(), into.data(),
                                           into.size(), &size);
        });
        return found ? std::optional(size) : std::nullopt;
    }
    std::optional<std::string> read_for_update(structure_ref structure, const_bytes key,
                                               on_error errors = {}) {
        detail::item_value value;
        std::optional<std::size_t> size = read_for_update(structure, key, bytes(value.data), errors);
        return size ? std::optional(std::string(value.data, *size)) : std::nullopt;
    }
    /* As the first `read`, as an object: io_error if the value has another size. */
    template <class T> std::optional<T> read(structure_ref structure, const_bytes key, on_error errors = {}) {
        static_assert(std::is_trivially_copyable_v<T>);
        detail::item_value value;
        std::optional<std::size_t> size = read(structure, key, bytes(value.data), errors);
        T result{};
        if (!size)
            return std::nullopt;
        if (*size != sizeof result) {
            errors.fail(-EIO, "the value of the key has another size than the type that is read");
            return std::nullopt;
        }
        std::memcpy(&result, value.data, sizeof result);
        return result;
    }
    /* Read several keys at the same time: for each its value, or std::nullopt if the key is absent. `keys` is
     * a container of keys, which exist during the call. After an error the result is empty. */
    template <class Keys>
    std::vector<std::optional<std::string>> read_many(structure_ref structure, const Keys &keys,
                                                      on_error errors = {}) {
        static_assert(std::is_lvalue_reference_v<decltype(*std::begin(keys))>,
                      "the iterator of the container returns a temporary key");
        std::unique_ptr<detail::item_value[]> room(new detail::item_value[std::size(keys)]);
        std::vector<remo_tx_lookup> lookups;
        std::vector<std::optional<std::string>> values;
        for (const auto &one : keys) {
            const_bytes key(one);
            lookups.push_back({structure.get(), key.data(), key.size(), room[lookups.size()].data,
                               sizeof room[0].data, 0, 0});
        }
        bool done = call(errors, [&](remo_tx *tx) {
            return remo_tx_read_many(tx, lookups.data(), static_cast<std::uint32_t>(lookups.size()));
        });
        for (const remo_tx_lookup &lookup : lookups) {
            if (!done)
                break;
            values.emplace_back();
            if (lookup.status == 0)
                values.back().emplace(static_cast<const char *>(lookup.value), lookup.value_bytes);
        }
        return values;
    }
    /* Return false if the key is present. */
    bool insert(structure_ref structure, const_bytes key, const_bytes value, on_error errors = {}) {
        return unless(errors, -EEXIST, [&](remo_tx *tx) {
            return remo_tx_insert(tx, structure.get(), key.data(), key.size(), value.data(), value.size());
        });
    }
    /* Return false if the key is absent. */
    bool update(structure_ref structure, const_bytes key, const_bytes value, on_error errors = {}) {
        return unless(errors, -ENOENT, [&](remo_tx *tx) {
            return remo_tx_update(tx, structure.get(), key.data(), key.size(), value.data(), value.size());
        });
    }
    /* Insert the key, or replace its value. */
    void put(structure_ref structure, const_bytes key, const_bytes value, on_error errors = {}) {
        call(errors, [&](remo_tx *tx) {
            return remo_tx_put(tx, structure.get(), key.data(), key.size(), value.data(), value.size());
        });
    }
    /* Return false if the key is absent. */
    bool erase(structure_ref structure, const_bytes key, on_error errors = {}) {
        return unless(errors, -ENOENT, [&](remo_tx *tx) {
            return remo_tx_delete(tx, structure.get(), key.data(), key.size());
        });
    }
    /* Append an element. */
    void push(const tx_queue &queue, const_bytes element, on_error errors = {}) {
        call(errors, [&](remo_tx *tx) {
            return remo_tx_queue_push(tx, queue.get(), element.data(), element.size());
        });
    }
    /* Remove the first element, copy it to `into`, and return its size; std::nullopt: the queue is empty. */
    std::optional<std::size_t> pop(const tx_queue &queue, bytes into, on_error errors = {}) {
        std::size_t size = 0;
        bool popped = unless(errors, -ENOENT, [&](remo_tx *tx) {
            return remo_tx_queue_pop(tx, queue.get(), into.data(), into.size(), &size);
        });
        return popped ? std::optional(size) : std::nullopt;
    }
    /* As above, in a new string. */
    std::optional<std::string> pop(const tx_queue &queue, on_error errors = {}) {
        detail::item_value value;
        std::optional<std::size_t> size = pop(queue, bytes(value.data), errors);
        return size ? std::optional(std::string(value.data, *size)) : std::nullopt;
    }
    /* Return the number of elements. */
    std::uint64_t count(const tx_queue &queue, on_error errors = {}) {
        std::uint64_t count = 0;
        call(errors, [&](remo_tx *tx) { return remo_tx_queue_count(tx, queue.get(), &count); });
        return count;
    }

  private:
    /* A run of `body`. An exception must not unwind the frames of the C library, so it is stored. */
    template <class Body> struct running {
        transaction &tx;
        Body &body;
        std::exception_ptr thrown;
        bool is_aborted;

        int run() {
            if constexpr (std::is_void_v<decltype(body(tx))>) {
                body(tx);
                return 0;
            } else {
                tx_step step = body(tx);
                is_aborted = step == tx_step::abort;
                return step == tx_step::wait ? REMO_TX_WAIT : is_aborted ? -ECANCELED : 0;
            }
        }
        static int step(void *context, remo_tx *tx) noexcept {
            auto *self = static_cast<running *>(context);
            std::exception_ptr thrown;
            try {
                return self->run();
            } catch (...) {
                thrown = std::current_exception();
            }
            if (remo_tx_check(tx) == -EAGAIN) /* after the catch: it may run other tasks of the thread */
                return -EAGAIN;
            self->thrown = std::move(thrown);
            return -ECANCELED;
        }
    };

    remo_tx **put_handle() noexcept {
        return handle::put();
    }
    template <class Function> bool unless_conflict(on_error errors, Function &&function) {
        bool is_conflict = false;
        bool done = call(errors, [&](remo_tx *tx) {
            int rc = function(tx);
            remo_tx_conflict conflict{};
            is_conflict = rc == -EAGAIN && remo_tx_last_conflict(tx, &conflict) == 0;
            return is_conflict ? 0 : rc;
        });
        return done && !is_conflict;
    }
};

} // namespace remo
