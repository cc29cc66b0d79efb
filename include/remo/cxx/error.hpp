/* cxx/error.hpp - errors and timeouts of the C++ interface. Part of <remo/remo.hpp>.
 *
 * Model:  every call that can fail takes an `on_error` as its last argument. Without one, the call throws
 *         remo::error. With a std::error_code in its place, the call stores the code there (and clears it
 *         on success), and returns a zero value after a failure. Expected results are return values: an
 *         absent key, an empty queue.
 * Codes:  positive errno values in remo::category(). They compare equal to remo::errc, and to std::errc if
 *         it has the code: `code == remo::errc::host_down`.
 * Cost:   none beyond the C call; an exception copies the sentence of remo_last_error().
 */
#pragma once

#include <remo/error.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <system_error>

namespace remo {

/* The codes of <remo/error.h> to which programs react. */
enum class errc {
    would_retry = EAGAIN,
    lock_held_by_caller = EDEADLK,
    exists = EEXIST,
    host_down = EHOSTDOWN,
    invalid_argument = EINVAL,
    io_error = EIO,
    message_size = EMSGSIZE,
    no_such_entry = ENOENT,
    no_space = ENOSPC,
    not_connected = ENOTCONN,
    not_recoverable = ENOTRECOVERABLE,
    not_supported = EOPNOTSUPP,
    owner_dead = EOWNERDEAD,
    not_permitted = EPERM,
    protocol = EPROTO,
    stale_address = ESTALE,
    timed_out = ETIMEDOUT,
};

namespace detail {
class category_type final : public std::error_category {
  public:
    const char *name() const noexcept override {
        return "remo";
    }
    std::string message(int code) const override {
        return remo_error_text(code);
    }
    std::error_condition default_error_condition(int code) const noexcept override {
        return std::error_condition(code, std::generic_category());
    }
};
} // namespace detail

/* The category of all codes of Remo. Exported, so all shared objects of a program use the same one. */
REMO_API inline const std::error_category &category() noexcept {
    static const detail::category_type instance;
    return instance;
}

inline std::error_code make_error_code(errc code) noexcept {
    return std::error_code(static_cast<int>(code), category());
}

/* A failed call. code() is the code, sentence() the sentence; what() has the name of the code and the
 * sentence. */
class error : public std::system_error {
  public:
    error(std::error_code code, std::string sentence)
        : std::system_error(code), sentence_(std::make_shared<const std::string>(std::move(sentence))),
          what_(std::make_shared<const std::string>(std::string(remo_error_name(code.value())) + ": "
                                                    + *sentence_)) {
    }
    const char *what() const noexcept override {
        return what_->c_str();
    }
    const std::string &sentence() const noexcept {
        return *sentence_;
    }

  private:
    /* Shared, since the copy of an exception must not throw. */
    std::shared_ptr<const std::string> sentence_, what_;
};

/* The way in which a call reports a failure: by an exception (default), or in the std::error_code that it was
 * made from. */
class on_error {
  public:
    on_error() noexcept = default;
    on_error(std::error_code &code) noexcept : code_(&code) {
    }
    /* Return whether `rc` (0 or more, or -errno) is a success; else report it with remo_last_error(). */
    bool check(int rc) const {
        if (rc < 0)
            return fail(rc, nullptr);
        if (code_)
            code_->clear();
        return true;
    }
    /* Report `rc` (-errno) with this sentence, and return false. */
    bool fail(int rc, const char *sentence) const {
        std::error_code code(-rc, category());
        if (!code_)
            throw error(code, sentence ? sentence : remo_last_error());
        *code_ = code;
        return false;
    }

  private:
    std::error_code *code_ = nullptr;
};

/* The longest wait of a call. Zero: try once. Any std::chrono duration converts to it. */
using timeout = std::chrono::nanoseconds;
/* No deadline. The failure of a peer that the call depends on still ends the wait. */
inline constexpr timeout forever = timeout::max();

namespace detail {
constexpr std::uint64_t timeout_ns(timeout time) noexcept {
    if (time == forever)
        return REMO_FOREVER;
    return time.count() > 0 ? static_cast<std::uint64_t>(time.count()) : 0;
}
} // namespace detail

} // namespace remo

template <> struct std::is_error_code_enum<remo::errc> : std::true_type {};
