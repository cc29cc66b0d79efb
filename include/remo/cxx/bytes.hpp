/* cxx/bytes.hpp - views of memory that calls read or fill. Part of <remo/remo.hpp>.
 *
 * Model:  `bytes` is memory that a call fills, `const_bytes` memory that it reads. Both are spans: an
 *         address and a size. They convert from arrays and from every container with data() and size()
 *         (std::vector, std::string, std::array, std::span) of trivially copyable elements.
 *         `object_bytes(x)` is a view of one object.
 * Text:   a view of a string literal ends before its terminating zero, and contains earlier zeros. A view of
 *         a char pointer, or of a char array that is not constant, ends before the first zero, and at the
 *         latest with the array. Use const_bytes(data, size) for other bytes in a char array.
 * Life:   a view does not own its memory, which must outlive it.
 */
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

namespace remo {

/* A pointer and a count: the part of C++20's std::span that Remo needs. std::span converts to and from it.
 * The type, and so each signature that uses it, is the same in every language version. */
template <class T> class span {
  public:
    using element_type = T;
    using value_type = std::remove_cv_t<T>;
    using iterator = T *;

    constexpr span() noexcept = default;
    constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {
    }
    constexpr T *data() const noexcept {
        return data_;
    }
    constexpr std::size_t size() const noexcept {
        return size_;
    }
    constexpr bool empty() const noexcept {
        return size_ == 0;
    }
    constexpr T &operator[](std::size_t i) const noexcept {
        return data_[i];
    }
    constexpr T *begin() const noexcept {
        return data_;
    }
    constexpr T *end() const noexcept {
        return data_ + size_;
    }

  private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

namespace detail {
/* The element type of a contiguous container, from its data(); undefined for other types. */
template <class Container>
using element_of = std::remove_pointer_t<decltype(std::declval<Container &>().data())>;

template <class Container, class = void> struct is_readable : std::false_type {};
template <class Container>
struct is_readable<Container,
                   std::void_t<element_of<Container>, decltype(std::declval<Container &>().size())>>
    : std::is_trivially_copyable<element_of<Container>> {};

template <class Container, class = void> struct is_writable : std::false_type {};
template <class Container>
struct is_writable<Container, std::enable_if_t<is_readable<Container>::value>>
    : std::negation<std::is_const<element_of<Container>>> {};
} // namespace detail

class bytes : public span<std::byte> {
  public:
    constexpr bytes() noexcept = default;
    bytes(void *data, std::size_t size_bytes) noexcept : span(static_cast<std::byte *>(data), size_bytes) {
    }
    template <class Container,
              class = std::enable_if_t<detail::is_writable<std::remove_reference_t<Container>>::value>>
    bytes(Container &&container) noexcept
        : bytes(static_cast<void *>(container.data()),
                container.size() * sizeof(detail::element_of<std::remove_reference_t<Container>>)) {
    }
    template <class T, std::size_t N,
              class = std::enable_if_t<std::is_trivially_copyable_v<T> && !std::is_const_v<T>>>
    bytes(T (&array)[N]) noexcept : bytes(static_cast<void *>(array), sizeof array) {
    }
};

class const_bytes : public span<const std::byte> {
  public:
    constexpr const_bytes() noexcept = default;
    const_bytes(const void *data, std::size_t size_bytes) noexcept
        : span(static_cast<const std::byte *>(data), size_bytes) {
    }
    template <
        class Pointer,
        std::enable_if_t<std::is_pointer_v<Pointer> && std::is_convertible_v<Pointer, const char *>, int> = 0>
    const_bytes(const Pointer &text) noexcept
        : const_bytes(static_cast<const char *>(text), std::strlen(text)) {
    }
    template <std::size_t N>
    const_bytes(const char (&text)[N]) noexcept : const_bytes(text, text[N - 1] == '\0' ? N - 1 : N) {
    }
    template <std::size_t N>
    const_bytes(char (&text)[N]) noexcept
        : const_bytes(text, static_cast<std::size_t>(std::find(text, text + N, '\0') - text)) {
    }
    template <class Container, class = std::enable_if_t<detail::is_readable<const Container>::value>>
    const_bytes(const Container &container) noexcept
        : const_bytes(static_cast<const void *>(container.data()),
                      container.size() * sizeof(detail::element_of<const Container>)) {
    }
    template <class T, std::size_t N,
              class = std::enable_if_t<std::is_trivially_copyable_v<T> && !std::is_same_v<T, char>>>
    const_bytes(const T (&array)[N]) noexcept : const_bytes(static_cast<const void *>(array), sizeof array) {
    }
};

template <class T, class = std::enable_if_t<std::is_trivially_copyable_v<T> && !std::is_const_v<T>>>
bytes object_bytes(T &object) noexcept {
    return bytes(std::addressof(object), sizeof object);
}

template <class T, class = std::enable_if_t<std::is_trivially_copyable_v<T>>>
const_bytes object_bytes(const T &object) noexcept {
    return const_bytes(std::addressof(object), sizeof object);
}

} // namespace remo
