/* cxx/collective.hpp - broadcast, reductions and gathers. Part of <remo/remo.hpp>.
 * Contract of each call: <remo/collective.h>. */
#pragma once

#include <remo/collective.h>
#include <remo/cxx/node.hpp>

#include <iterator>
#include <type_traits>
#include <vector>

namespace remo {

/* The operation of a reduction. The last three require integers. */
enum class reduction {
    sum = REMO_REDUCTION_SUM,
    min = REMO_REDUCTION_MIN,
    max = REMO_REDUCTION_MAX,
    bit_and = REMO_REDUCTION_AND,
    bit_or = REMO_REDUCTION_OR,
    bit_xor = REMO_REDUCTION_XOR,
};

/* Calls that all participants make in the same order, with the same root, sizes and types, as in MPI.
 * Numbers are integers of 8 bytes and double. `send` and `receive` of a reduction are contiguous containers
 * or arrays of one element type and one size; they may be the same. After errc::timed_out the call is
 * incomplete: repeat it. Nodes read from each other: wait in a barrier before you close the object. */
class collective : public detail::object<remo_collective, remo_collective_close, remo_collective_channel> {
  public:
    collective() noexcept = default;
    collective(channel_ref parent, const std::string &name, const remo_collective_options &options = {},
               on_error errors = {}) {
        open(
            [&](remo_collective **c) {
                return remo_collective_open(parent.get(), name.c_str(), &options, c);
            },
            errors);
    }
    /* Copy `data` of the root to `data` of every other participant. */
    void broadcast(std::uint32_t root, bytes data, timeout time = forever, on_error errors = {}) {
        call(errors, [&](remo_collective *c) {
            return remo_collective_broadcast(c, root, data.data(), data.size(), detail::timeout_ns(time));
        });
    }
    /* Combine the numbers of all participants, element by element, into `receive` of the root. */
    template <class Send, class Receive>
    void reduce(std::uint32_t root, const Send &send, Receive &receive, reduction how, timeout time = forever,
                on_error errors = {}) {
        call_with_room(errors, std::size(send), std::size(receive), [&](remo_collective *c) {
            return remo_collective_reduce(c, root, std::data(send), std::data(receive), std::size(send),
                                          number_of<Send, Receive>(), remo_reduction(how),
                                          detail::timeout_ns(time));
        });
    }
    /* The same, into `receive` of every participant. */
    template <class Send, class Receive, class = decltype(std::size(std::declval<Send &>()))>
    void all_reduce(const Send &send, Receive &receive, reduction how, timeout time = forever,
                    on_error errors = {}) {
        call_with_room(errors, std::size(send), std::size(receive), [&](remo_collective *c) {
            return remo_collective_all_reduce(c, std::data(send), std::data(receive), std::size(send),
                                              number_of<Send, Receive>(), remo_reduction(how),
                                              detail::timeout_ns(time));
        });
    }
    /* The same, of one number. */
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
    T all_reduce(T number, reduction how, timeout time = forever, on_error errors = {}) {
        T result[1] = {number};
        bool done = call(errors, [&](remo_collective *c) {
            return remo_collective_all_reduce(c, result, result, 1, number_of<T[1], T[1]>(),
                                              remo_reduction(how), detail::timeout_ns(time));
        });
        return done ? result[0] : T{};
    }
    /* Copy `send` of each participant, in the order of the ranks, into `receive` of the root, which has room
     * for all. Other nodes do not use `receive`. */
    void gather(std::uint32_t root, const_bytes send, bytes receive, timeout time = forever,
                on_error errors = {}) {
        bool is_root = get() && remo_node_rank(remo_channel_node(channel().get())) == root;
        call_with_room(errors, is_root ? send.size() * count() : 0, is_root ? receive.size() : 0,
                       [&](remo_collective *c) {
                           return remo_collective_gather(c, root, send.data(), receive.data(), send.size(),
                                                         detail::timeout_ns(time));
                       });
    }
    /* The same, into `receive` of every participant. */
    void all_gather(const_bytes send, bytes receive, timeout time = forever, on_error errors = {}) {
        call_with_room(errors, send.size() * count(), receive.size(), [&](remo_collective *c) {
            return remo_collective_all_gather(c, send.data(), receive.data(), send.size(),
                                              detail::timeout_ns(time));
        });
    }
    /* The same, of one item. */
    template <class T, class = std::enable_if_t<std::is_trivially_copyable_v<T>>>
    std::vector<T> all_gather(const T &item, timeout time = forever, on_error errors = {}) {
        std::vector<T> all(count());
        all_gather(object_bytes(item), all, time, errors);
        return all;
    }

  private:
    template <class Container>
    using element = std::remove_cv_t<std::remove_pointer_t<decltype(std::data(std::declval<Container &>()))>>;

    template <class Send, class Receive> static constexpr remo_number number_of() {
        using T = element<Send>;
        static_assert(std::is_same_v<T, element<Receive>>, "send and receive have the same element type");
        static_assert(sizeof(T) == 8 && (std::is_integral_v<T> || std::is_same_v<T, double>),
                      "the elements of a reduction are integers of 8 bytes or double");
        return std::is_floating_point_v<T> ? REMO_NUMBER_DOUBLE
               : std::is_signed_v<T>       ? REMO_NUMBER_I64
                                           : REMO_NUMBER_U64;
    }
    /* Return the number of participants. */
    std::size_t count() const noexcept {
        std::size_t members = 0;
        nodeset set = get() ? channel().participants() : nodeset{};
        for (std::uint32_t node = 0; node < REMO_NODES_MAX; node++)
            members += remo_nodeset_has(&set, node) ? 1u : 0u;
        return members;
    }
    /* Check the size of `receive`, which the C functions do not take. */
    template <class Function>
    void call_with_room(on_error errors, std::size_t needed, std::size_t room, Function &&function) {
        if (get() && room < needed)
            errors.fail(-EINVAL,
                        "the result does not fit into `receive`; make it as large as the contributions "
                        "that it holds");
        else
            call(errors, function);
    }
};

} // namespace remo
