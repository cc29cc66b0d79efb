/* cxx/tree.hpp - the ordered map. Part of <remo/remo.hpp>. Contract of each call: <remo/tree.h>. */
#pragma once

#include <remo/cxx/iterator.hpp>
#include <remo/cxx/node.hpp>
#include <remo/tree.h>

#include <cerrno>
#include <cstddef>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace remo {

/* An entry in the buffer of a scan: views, which are valid as long as the contents of the buffer. */
struct tree_entry {
    std::string_view key, value;
};

/* The versions of all owners at one instant: plain data, which other nodes can use too. */
using tree_snapshot = std::vector<std::uint64_t>;

/* A range of keys, by default all keys. `from` and `to` with data() nullptr: no limit. */
struct tree_range {
    const_bytes from{}, to{};
    std::uint32_t flags = 0;                 /* REMO_TREE_... */
    std::uint64_t limit = 0;                 /* the maximum number of entries; 0: no limit */
    const tree_snapshot *snapshot = nullptr; /* nullptr: as of an instant of the call */
};

/* One write of tree::apply. `value` is not used by a remove, `expected` only by a compare_put. */
struct tree_write {
    remo_tree_kind kind = REMO_TREE_UPSERT;
    const_bytes key{}, value{}, expected{};
};

namespace detail {
inline tree_entry tree_entry_of(const remo_tree_entry &entry) noexcept {
    return {{static_cast<const char *>(entry.key.data), entry.key.bytes},
            {static_cast<const char *>(entry.value.data), entry.value.bytes}};
}
} // namespace detail

/* The entries that a scan has copied to a buffer, to which the result refers. */
class tree_result {
  public:
    tree_result() noexcept = default;
    tree_result(const void *buffer, const remo_tree_result &result) noexcept
        : buffer_(buffer), result_(result) {
    }
    std::uint64_t size() const noexcept {
        return result_.entries;
    }
    bool empty() const noexcept {
        return result_.entries == 0;
    }
    /* Return false if the buffer or the limit ended the scan before the end of the range. */
    bool is_complete() const noexcept {
        return result_.is_complete != 0;
    }
    /* Return the next entry, or std::nullopt after the last one. */
    std::optional<tree_entry> next() noexcept {
        remo_tree_entry entry{};
        if (!buffer_ || !remo_tree_result_next(buffer_, &result_, &offset_, &entry))
            return std::nullopt;
        return detail::tree_entry_of(entry);
    }

    /* For range-based loops: begin() returns to the first entry. */
    using iterator = detail::cursor_iterator<tree_result, tree_entry>;
    iterator begin() noexcept {
        offset_ = 0;
        return iterator(*this);
    }
    iterator end() const noexcept {
        return iterator();
    }

  private:
    const void *buffer_ = nullptr;
    remo_tree_result result_{};
    std::size_t offset_ = 0;
};

namespace detail {
inline remo_tree_key tree_key(const_bytes key) noexcept {
    return {key.data(), key.size()};
}
inline remo_tree_range tree_range_of(const tree_range &range) noexcept {
    remo_tree_range result{};
    result.from = tree_key(range.from);
    result.to = tree_key(range.to);
    result.flags = range.flags;
    result.limit = range.limit;
    result.snapshot = range.snapshot ? range.snapshot->data() : nullptr;
    return result;
}
/* The input of a load: pairs of a key and a value. An exception must not unwind the frames of the C library,
 * so it is stored until the load ends. */
template <class Entries> class tree_input {
  public:
    explicit tree_input(Entries &entries) : at_(std::begin(entries)), end_(std::end(entries)) {
    }
    static int next(void *context, remo_tree_entry *entry) noexcept {
        auto *self = static_cast<tree_input *>(context);
        try {
            return self->step(*entry);
        } catch (...) {
            self->thrown_ = std::current_exception();
            return -ECANCELED;
        }
    }
    const std::exception_ptr &thrown() const noexcept {
        return thrown_;
    }

  private:
    using iterator = decltype(std::begin(std::declval<Entries &>()));
    using sentinel = decltype(std::end(std::declval<Entries &>()));
    using reference = decltype(*std::declval<iterator &>());
    /* The iterator refers to an entry, or makes it. The entry stays until the next call. */
    using holder =
        std::conditional_t<std::is_lvalue_reference_v<reference>, std::remove_reference_t<reference> *,
                           std::optional<std::decay_t<reference>>>;

    int step(remo_tree_entry &entry) {
        if (is_begun_)
            ++at_;
        is_begun_ = true;
        if (!(at_ != end_))
            return 0;
        if constexpr (std::is_lvalue_reference_v<reference>)
            held_ = std::addressof(*at_);
        else
            held_.emplace(*at_);
        const auto &[key, value] = *held_;
        entry.key = tree_key(const_bytes(key));
        entry.value = tree_key(const_bytes(value));
        return 1;
    }

    iterator at_;
    sentinel end_;
    holder held_{};
    bool is_begun_ = false;
    std::exception_ptr thrown_;
};

/* The C functions read one word of a snapshot for each owner. */
inline bool check_snapshot(const remo_tree *tree, const tree_snapshot *snapshot, on_error errors) {
    if (!snapshot || snapshot->size() == remo_tree_owners(tree))
        return true;
    return errors.fail(-EINVAL,
                       "cannot read a tree as of this snapshot: it does not have a word for each owner; "
                       "use a snapshot of this tree");
}
} // namespace detail

/* A cursor over the entries of a range (remo_tree_cursor_open). It refers to the C object of the tree, which
 * must stay open, and owns copies of the limits of its range and of the snapshot. A cursor that could not be
 * opened is empty: its calls fail. */
class tree_cursor {
  public:
    tree_cursor(remo_tree *tree, const tree_range &range, std::size_t page_bytes, on_error errors = {}) {
        remo_tree_range all = detail::tree_range_of(range);
        remo_tree_cursor *cursor = nullptr;
        if (tree && !detail::check_snapshot(tree, range.snapshot, errors))
            return;
        if (errors.check(remo_tree_cursor_open(tree, &all, page_bytes, &cursor)))
            cursor_.reset(cursor);
    }
    /* Move to the next entry, or to the previous one, and return it; std::nullopt at the end of the range.
     * The views of the entry are valid until the next call. */
    std::optional<tree_entry> next(on_error errors = {}) {
        return step(remo_tree_cursor_next, errors);
    }
    std::optional<tree_entry> prev(on_error errors = {}) {
        return step(remo_tree_cursor_prev, errors);
    }
    /* Move just before `key`. */
    void seek(const_bytes key, on_error errors = {}) {
        const void *at = key.data() ? static_cast<const void *>(key.data()) : "";
        errors.check(remo_tree_cursor_seek(cursor_.get(), at, key.size()));
    }

    /* For range-based loops. They end with an exception at the first error. */
    using iterator = detail::cursor_iterator<tree_cursor, tree_entry>;
    iterator begin() {
        return iterator(*this);
    }
    iterator end() const noexcept {
        return iterator();
    }

  private:
    struct closer {
        void operator()(remo_tree_cursor *cursor) const noexcept {
            remo_tree_cursor_close(cursor);
        }
    };
    std::optional<tree_entry> step(int (*move)(remo_tree_cursor *, remo_tree_entry *), on_error errors) {
        remo_tree_entry entry{};
        int rc = move(cursor_.get(), &entry);
        if (!errors.check(rc) || rc == 0)
            return std::nullopt;
        return detail::tree_entry_of(entry);
    }

    std::unique_ptr<remo_tree_cursor, closer> cursor_;
};

/* An ordered map of bytes to bytes. An absent or present key is a result, never an error. */
class tree : public detail::object<remo_tree, remo_tree_close, remo_tree_channel> {
  public:
    tree() noexcept = default;
    tree(channel_ref parent, const std::string &name, const remo_tree_options &options = {},
         on_error errors = {}) {
        open([&](remo_tree **t) { return remo_tree_open(parent.get(), name.c_str(), &options, t); }, errors);
    }
    /* Copy the value of `key` to `into`, and return its size; std::nullopt if the key is absent. */
    std::optional<std::size_t> get(const_bytes key, bytes into, on_error errors = {}) {
        return read(nullptr, key, into, errors);
    }
    /* As above, in a new string. */
    std::optional<std::string> get(const_bytes key, on_error errors = {}) {
        return read(nullptr, key, errors);
    }
    /* As above, as of a snapshot. Errors: also stale_address, if the owner does not retain it any more. */
    std::optional<std::size_t> get_at(const tree_snapshot &snapshot, const_bytes key, bytes into,
                                      on_error errors = {}) {
        return read(&snapshot, key, into, errors);
    }
    std::optional<std::string> get_at(const tree_snapshot &snapshot, const_bytes key, on_error errors = {}) {
        return read(&snapshot, key, errors);
    }
    /* Return false if the key is present. */
    bool insert(const_bytes key, const_bytes value, on_error errors = {}) {
        return unless(errors, -EEXIST, [&](remo_tree *t) {
            return remo_tree_insert(t, key.data(), key.size(), value.data(), value.size());
        });
    }
    /* Return false if the key is absent. */
    bool update(const_bytes key, const_bytes value, on_error errors = {}) {
        return unless(errors, -ENOENT, [&](remo_tree *t) {
            return remo_tree_update(t, key.data(), key.size(), value.data(), value.size());
        });
    }
    /* Insert the key, or replace its value (remo_tree_upsert). */
    void put(const_bytes key, const_bytes value, on_error errors = {}) {
        call(errors, [&](remo_tree *t) {
            return remo_tree_upsert(t, key.data(), key.size(), value.data(), value.size());
        });
    }
    /* Replace the value if it equals `expected`. Return false, without a change, if the value differs or the
     * key is absent. */
    bool compare_put(const_bytes key, const_bytes expected, const_bytes value, on_error errors = {}) {
        return unless(errors, -ENOENT, [&](remo_tree *t) {
            int rc = remo_tree_compare_put(t, key.data(), key.size(), expected.data(), expected.size(),
                                           value.data(), value.size());
            return rc == -ESTALE ? -ENOENT : rc;
        });
    }
    /* Remove the keys of a range, and return their number, also after an error (remo_tree_remove_range). */
    std::uint64_t erase_range(const tree_range &range, on_error errors = {}) {
        std::uint64_t count = 0;
        call(errors, range.snapshot, [&](remo_tree *t) {
            remo_tree_range all = detail::tree_range_of(range);
            return remo_tree_remove_range(t, &all, &count);
        });
        return count;
    }
    /* Return false if the key is absent (remo_tree_remove). */
    bool erase(const_bytes key, on_error errors = {}) {
        return unless(errors, -ENOENT,
                      [&](remo_tree *t) { return remo_tree_remove(t, key.data(), key.size()); });
    }

    /* Get several keys, each as of an instant of its own: for each of them its value, or std::nullopt if the
     * key is absent. `keys` is a container of keys. After an error the result is empty. */
    template <class Keys>
    std::vector<std::optional<std::string>> get_many(const Keys &keys, on_error errors = {}) {
        std::vector<remo_tree_item> items;
        for (const auto &key : keys)
            items.push_back({detail::tree_key(const_bytes(key)), nullptr, first_room, 0, 0});
        std::vector<char> room(items.size() * first_room);
        for (std::size_t i = 0; i < items.size(); i++)
            items[i].value = room.data() + i * first_room;
        std::vector<std::optional<std::string>> values;
        remo_tree_item none{}; /* the C function accepts no null pointer */
        if (!call(errors, [&](remo_tree *t) {
                return remo_tree_get_many(t, items.empty() ? &none : items.data(),
                                          static_cast<std::uint32_t>(items.size()));
            }))
            return values;
        for (const remo_tree_item &item : items) {
            values.emplace_back();
            if (item.status == 0)
                values.back().emplace(static_cast<const char *>(item.value), item.value_bytes);
            else if (item.status == -EMSGSIZE)
                values.back() = get({item.key.data, item.key.bytes}, errors);
        }
        return values;
    }
    /* Make all writes at one instant, or none (remo_tree_apply). Return the index of the write that found its
     * key present, absent, or with another value than expected: then nothing has changed. std::nullopt: all
     * writes were made. */
    std::optional<std::size_t> apply(const std::vector<tree_write> &writes, on_error errors = {}) {
        std::vector<remo_tree_write> all;
        for (const tree_write &write : writes)
            all.push_back({write.kind, detail::tree_key(write.key), detail::tree_key(write.value),
                           detail::tree_key(write.expected)});
        std::uint32_t failed = 0;
        bool is_refused = false;
        call(errors, [&](remo_tree *t) {
            remo_tree_write none{}; /* the C function accepts no null pointer */
            int rc = remo_tree_apply(t, all.empty() ? &none : all.data(),
                                     static_cast<std::uint32_t>(all.size()), &failed);
            is_refused = rc == -EEXIST || rc == -ENOENT || rc == -ESTALE;
            return is_refused ? 0 : rc;
        });
        return is_refused ? std::optional<std::size_t>(failed) : std::nullopt;
    }
    /* Load sorted data at their owner (remo_tree_load): pairs of a key and a value, for example of a std::map
     * or a std::vector. Return the number of entries that were loaded, also after an error. An exception of
     * the iteration ends the load and reaches the caller; the entries before it are loaded. */
    template <class Entries>
    std::uint64_t load(Entries &&entries, std::uint32_t fill_percent = 0, on_error errors = {}) {
        detail::tree_input<std::remove_reference_t<Entries>> input(entries);
        std::uint64_t count = 0;
        call(errors, [&](remo_tree *t) {
            int rc = remo_tree_load(t, input.next, &input, fill_percent, &count);
            return input.thrown() ? 0 : rc;
        });
        if (input.thrown())
            std::rethrow_exception(input.thrown());
        return count;
    }

    /* Copy the entries of a range to `buffer`, as of one instant. */
    tree_result scan(const tree_range &range, bytes buffer, on_error errors = {}) {
        remo_tree_result result{};
        bool done = call(errors, range.snapshot, [&](remo_tree *t) {
            remo_tree_range all = detail::tree_range_of(range);
            return remo_tree_scan(t, &all, buffer.data(), buffer.size(), &result);
        });
        return done ? tree_result(buffer.data(), result) : tree_result();
    }
    /* Return a cursor over a range: for (const auto &[key, value] : map.entries({"a", "b"})). page_bytes is
     * the size of its buffer; 0: 65536. */
    tree_cursor entries(const tree_range &range = {}, std::size_t page_bytes = 0,
                        on_error errors = {}) const {
        return tree_cursor(get(), range, page_bytes, errors);
    }
    /* Return the number of entries of a range as of one instant. It costs as much as a scan. */
    std::uint64_t count(const tree_range &range = {}, on_error errors = {}) {
        std::uint64_t count = 0;
        call(errors, range.snapshot, [&](remo_tree *t) {
            remo_tree_range all = detail::tree_range_of(range);
            return remo_tree_count(t, &all, &count);
        });
        return count;
    }
    /* Return the versions of all owners at one instant. */
    tree_snapshot snapshot(on_error errors = {}) {
        tree_snapshot versions(get() ? remo_tree_owners(get()) : 0);
        bool done = call(errors, [&](remo_tree *t) { return remo_tree_snapshot(t, versions.data()); });
        return done ? versions : tree_snapshot();
    }
    /* Return the state of this node's keys. Errors: not_permitted, if this node is not an owner. */
    remo_tree_owner_stats stats(on_error errors = {}) const {
        remo_tree_owner_stats stats{};
        call(errors, [&](remo_tree *t) { return remo_tree_stats(t, &stats); });
        return stats;
    }
    /* A window of operations: `op`, its key and its values must stay in place while op.status is
     * -EINPROGRESS. Afterwards op.status is the result. See <remo/tree.h>. */
    void start(remo_tree_op &op, on_error errors = {}) {
        call(errors, [&](remo_tree *t) { return remo_tree_start(t, &op); });
    }
    /* Advance the operations of this thread, and return the number in flight. */
    std::uint32_t poll(on_error errors = {}) {
        int count = 0;
        call(errors, [&](remo_tree *t) { return count = remo_tree_poll(t); });
        return static_cast<std::uint32_t>(count > 0 ? count : 0);
    }
    /* Wait until `op` is complete, and return its status: 0, -ENOENT or -EEXIST, or another -errno. */
    int wait(remo_tree_op &op) {
        return remo_tree_wait(get(), &op);
    }
    /* Return the rank of the owner of a key. */
    std::uint32_t owner(const_bytes key) const noexcept {
        return remo_tree_owner(get(), key.data(), key.size());
    }
    std::uint32_t owners() const noexcept {
        return remo_tree_owners(get());
    }

    using object::get;

  private:
    static constexpr std::size_t first_room = 1024;
    using object::call;

    /* As call, but check the snapshot first. */
    template <class Function>
    bool call(on_error errors, const tree_snapshot *snapshot, Function &&function) const {
        return (!get() || detail::check_snapshot(get(), snapshot, errors)) && call(errors, function);
    }
    static int read(remo_tree *t, const tree_snapshot *snapshot, const_bytes key, bytes into,
                    std::size_t &size) {
        size = 0;
        return snapshot ? remo_tree_get_at(t, snapshot->data(), key.data(), key.size(), into.data(),
                                           into.size(), &size)
                        : remo_tree_get(t, key.data(), key.size(), into.data(), into.size(), &size);
    }
    std::optional<std::size_t> read(const tree_snapshot *snapshot, const_bytes key, bytes into,
                                    on_error errors) {
        std::size_t size = 0;
        if (get() && !detail::check_snapshot(get(), snapshot, errors))
            return std::nullopt;
        bool found =
            unless(errors, -ENOENT, [&](remo_tree *t) { return read(t, snapshot, key, into, size); });
        return found ? std::optional(size) : std::nullopt;
    }
    std::optional<std::string> read(const tree_snapshot *snapshot, const_bytes key, on_error errors) {
        std::string value(first_room, '\0');
        std::size_t size = 0;
        if (get() && !detail::check_snapshot(get(), snapshot, errors))
            return std::nullopt;
        bool found = unless(errors, -ENOENT, [&](remo_tree *t) {
            int rc = read(t, snapshot, key, value, size);
            for (; rc == -EMSGSIZE && size > value.size(); rc = read(t, snapshot, key, value, size))
                value.resize(size);
            return rc;
        });
        if (!found)
            return std::nullopt;
        value.resize(size);
        return value;
    }
};

} // namespace remo
