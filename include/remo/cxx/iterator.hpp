/* cxx/iterator.hpp - the iterator of all cursors, for range-based loops. Part of <remo/remo.hpp>.
 *
 * Model: a cursor has `std::optional<Entry> next()`. Its iterator holds one entry, and refers to the cursor.
 *        A loop ends with an exception at the first error. */
#pragma once

#include <cstddef>
#include <iterator>
#include <optional>

namespace remo::detail {

template <class Cursor, class Entry> class cursor_iterator {
  public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Entry;
    using difference_type = std::ptrdiff_t;
    using pointer = const Entry *;
    using reference = const Entry &;

    cursor_iterator() = default; /* the end */
    explicit cursor_iterator(Cursor &cursor) : cursor_(&cursor), entry_(cursor.next()) {
    }
    reference operator*() const noexcept {
        return *entry_;
    }
    pointer operator->() const noexcept {
        return &*entry_;
    }
    cursor_iterator &operator++() {
        entry_ = cursor_->next();
        return *this;
    }
    void operator++(int) {
        ++*this;
    }
    /* Iterators are equal if both are at the end. */
    friend bool operator==(const cursor_iterator &a, const cursor_iterator &b) noexcept {
        return !a.entry_ && !b.entry_;
    }
    friend bool operator!=(const cursor_iterator &a, const cursor_iterator &b) noexcept {
        return !(a == b);
    }

  private:
    Cursor *cursor_ = nullptr;
    std::optional<Entry> entry_;
};

} // namespace remo::detail
