/* cxx/shared.hpp - owned variables and shared state tables. Part of <remo/remo.hpp>.
 * Contract of each call: <remo/owned_var.h>, <remo/sst.h>. */
#pragma once

#include <remo/cxx/node.hpp>
#include <remo/owned_var.h>
#include <remo/sst.h>

#include <exception>
#include <type_traits>

namespace remo {

/* A T with one writer and a cached copy at every participant. */
template <class T>
class owned_var : public detail::object<remo_owned_var, remo_owned_var_close, remo_owned_var_channel> {
    static_assert(std::is_trivially_copyable_v<T>, "the network copies the value byte by byte");

  public:
    owned_var() noexcept = default;
    owned_var(channel_ref parent, const std::string &name, const remo_owned_var_options &options = {},
              on_error errors = {}) {
        open(
            [&](remo_owned_var **v) {
                return remo_owned_var_open(parent.get(), name.c_str(), sizeof(T), &options, v);
            },
            errors);
    }
    /* Owner: set the value. Other nodes get it by a push or a pull. */
    void store(const T &value, on_error errors = {}) {
        call(errors, [&](remo_owned_var *v) { return remo_owned_var_store(v, &value); });
    }
    /* Return the copy of this node. */
    T load(on_error errors = {}) {
        T value{};
        call(errors, [&](remo_owned_var *v) { return remo_owned_var_load(v, &value); });
        return value;
    }
    /* Owner: write the value to one participant, or to all others that are up. */
    void push(std::uint32_t node, on_error errors = {}) {
        call(errors, [&](remo_owned_var *v) { return remo_owned_var_push(v, node, nullptr); });
    }
    void push_all(on_error errors = {}) {
        call(errors, [](remo_owned_var *v) { return remo_owned_var_push_all(v, nullptr); });
    }
    /* Read the owner's value into the copy of this node, and return it. */
    T pull(on_error errors = {}) {
        T value{};
        call(errors, [&](remo_owned_var *v) { return remo_owned_var_pull(v, &value); });
        return value;
    }
    /* Wait until the copy on this node differs from `old`, and return it. Compares bytes, also of padding. */
    T wait(const T &old, timeout time = forever, on_error errors = {}) {
        T value{};
        call(errors, [&](remo_owned_var *v) {
            return remo_owned_var_wait(v, &old, &value, detail::timeout_ns(time));
        });
        return value;
    }
};

/* A table with a row of type T per participant: each writes its own row, and reads all rows locally. */
template <class T> class sst : public detail::object<remo_sst, remo_sst_close, remo_sst_channel> {
    static_assert(std::is_trivially_copyable_v<T>, "the network copies a row byte by byte");

  public:
    sst() noexcept = default;
    sst(channel_ref parent, const std::string &name, const remo_sst_options &options = {},
        on_error errors = {}) {
        open([&](remo_sst **s) { return remo_sst_open(parent.get(), name.c_str(), sizeof(T), &options, s); },
             errors);
    }
    /* Set this node's row in local memory. */
    void store(const T &row, on_error errors = {}) {
        call(errors, [&](remo_sst *s) { return remo_sst_store(s, &row); });
    }
    /* Return the local copy of the row of `node`. */
    T load(std::uint32_t node, on_error errors = {}) {
        T row{};
        call(errors, [&](remo_sst *s) { return remo_sst_load(s, node, &row); });
        return row;
    }
    /* Write this node's row to one participant, or to all others that are up. */
    void push(std::uint32_t node, on_error errors = {}) {
        call(errors, [&](remo_sst *s) { return remo_sst_push(s, node, nullptr); });
    }
    void push_all(on_error errors = {}) {
        call(errors, [](remo_sst *s) { return remo_sst_push_all(s, nullptr); });
    }
    /* Return the first participant with a rank >= `from`, or REMO_NODES_MAX. */
    std::uint32_t next(std::uint32_t from) const noexcept {
        return remo_sst_next(get(), from);
    }
    /* Wait until `ready(*this)` is true. The library calls `ready` again when a row may have changed and at
     * each membership change. An exception of `ready` ends the wait and reaches the caller. */
    template <class Ready> void wait(Ready &&ready, timeout time = forever, on_error errors = {}) {
        condition<Ready> context{this, &ready, nullptr};
        bool done = call(errors, [&](remo_sst *s) {
            int rc = remo_sst_wait(s, condition<Ready>::test, &context, detail::timeout_ns(time));
            return context.thrown ? 0 : rc;
        });
        if (done && context.thrown)
            std::rethrow_exception(context.thrown);
    }

  private:
    /* An exception must not unwind the frames of the C library, so it is stored until the wait ends. */
    template <class Ready> struct condition {
        sst *table;
        std::remove_reference_t<Ready> *ready;
        std::exception_ptr thrown;
        static int test(void *context, remo_sst *) {
            auto *self = static_cast<condition *>(context);
            try {
                return (*self->ready)(*self->table) ? 1 : 0;
            } catch (...) {
                self->thrown = std::current_exception();
                return -ECANCELED;
            }
        }
    };
};

} // namespace remo
