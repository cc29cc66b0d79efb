/* cxx/queue.hpp - queues and ring buffers. Part of <remo/remo.hpp>.
 * Contract of each call: <remo/queue.h>, <remo/ringbuffer.h>. */
#pragma once

#include <remo/cxx/node.hpp>
#include <remo/queue.h>
#include <remo/ringbuffer.h>

#include <optional>
#include <vector>

namespace remo {

/* A bounded FIFO queue: any node pushes, any node pops. */
class queue : public detail::object<remo_queue, remo_queue_close, remo_queue_channel> {
  public:
    queue() noexcept = default;
    queue(channel_ref parent, const std::string &name, const remo_queue_options &options = {},
          on_error errors = {})
        : slot_bytes_(options.slot_bytes ? options.slot_bytes : default_slot_bytes) {
        open([&](remo_queue **q) { return remo_queue_open(parent.get(), name.c_str(), &options, q); },
             errors);
    }
    /* Append an element; copied on return. Return false if the queue stayed full for `time`. */
    bool push(const_bytes element, timeout time = forever, on_error errors = {}) {
        return within(errors, [&](remo_queue *q) {
            return remo_queue_push(q, element.data(), element.size(), detail::timeout_ns(time));
        });
    }
    /* Remove the first element, copy it to `into`, and return its size; std::nullopt if the queue stayed
     * empty for `time`. Errors: message_size (`into` is too small; the element stays); io_error (the message
     * states whether the removal has an unknown outcome; if so, `into` has the element); and others. */
    std::optional<std::size_t> pop(bytes into, timeout time = forever, on_error errors = {}) {
        std::size_t size = 0;
        bool popped = within(errors, [&](remo_queue *q) {
            return remo_queue_pop(q, into.data(), into.size(), &size, detail::timeout_ns(time));
        });
        return popped ? std::optional(size) : std::nullopt;
    }
    /* As above, in a new vector. */
    std::optional<std::vector<std::byte>> pop(timeout time = forever, on_error errors = {}) {
        std::vector<std::byte> element(slot_bytes_);
        std::optional<std::size_t> size = pop(element, time, errors);
        if (!size)
            return std::nullopt;
        element.resize(*size);
        return element;
    }

  private:
    static constexpr std::size_t default_slot_bytes = 56;

    /* Return false, without an error, if the deadline passes. */
    template <class Function> bool within(on_error errors, Function &&function) {
        bool in_time = true;
        bool done = call(errors, [&](remo_queue *q) {
            int rc = function(q);
            in_time = rc != -ETIMEDOUT;
            return in_time ? rc : 0;
        });
        return done && in_time;
    }

    std::size_t slot_bytes_ = default_slot_bytes;
};

/* Messages of one sender to all other participants, in order. */
class ringbuffer : public detail::object<remo_ringbuffer, remo_ringbuffer_close, remo_ringbuffer_channel> {
  public:
    ringbuffer() noexcept = default;
    ringbuffer(channel_ref parent, const std::string &name, const remo_ringbuffer_options &options = {},
               on_error errors = {}) {
        open(
            [&](remo_ringbuffer **r) {
                return remo_ringbuffer_open(parent.get(), name.c_str(), &options, r);
            },
            errors);
    }
    std::size_t message_bytes_max() const noexcept {
        return remo_ringbuffer_message_bytes_max(get());
    }
    /* Sender: send a message to all receivers, and return its position, for wait_received. Errors: timed_out
     * (the ring stayed full), not_permitted, message_size, protocol. */
    std::uint64_t send(const_bytes message, timeout time = forever, on_error errors = {}) {
        std::uint64_t position = 0;
        call(errors, [&](remo_ringbuffer *r) {
            return remo_ringbuffer_send(r, message.data(), message.size(), detail::timeout_ns(time),
                                        &position);
        });
        return position;
    }
    /* Sender: reserve room for a message of `size` bytes, and return where to build it; std::nullopt if the
     * ring stayed full for `time`. Errors: those of send. */
    std::optional<bytes> loan(std::size_t size, timeout time = forever, on_error errors = {}) {
        void *message = nullptr;
        bool in_time = true;
        bool done = call(errors, [&](remo_ringbuffer *r) {
            int rc = remo_ringbuffer_loan(r, size, detail::timeout_ns(time), &message);
            in_time = rc != -ETIMEDOUT;
            return in_time ? rc : 0;
        });
        return done && in_time ? std::optional(bytes(message, size)) : std::nullopt;
    }
    /* Sender: send the first `size` bytes of the loaned message, and return its position. */
    std::uint64_t commit(std::size_t size, on_error errors = {}) {
        std::uint64_t position = 0;
        call(errors, [&](remo_ringbuffer *r) { return remo_ringbuffer_commit(r, size, &position); });
        return position;
    }
    /* Sender: end the loan without a message. */
    void cancel(on_error errors = {}) {
        call(errors, [](remo_ringbuffer *r) { return remo_ringbuffer_cancel(r); });
    }
    /* Sender: wait until every receiver that is up has acknowledged all messages up to `position`. */
    void wait_received(std::uint64_t position, timeout time = forever, on_error errors = {}) {
        call(errors, [&](remo_ringbuffer *r) {
            return remo_ringbuffer_wait_received(r, position, detail::timeout_ns(time));
        });
    }
    /* Receiver: remove the next message, copy it to `into`, and return its size; std::nullopt if none arrived
     * within `time`. */
    std::optional<std::size_t> receive(bytes into, timeout time = forever, on_error errors = {}) {
        std::size_t size = 0;
        bool in_time = true;
        bool done = call(errors, [&](remo_ringbuffer *r) {
            int rc = remo_ringbuffer_receive(r, into.data(), into.size(), &size, detail::timeout_ns(time));
            in_time = rc != -ETIMEDOUT;
            return in_time ? rc : 0;
        });
        return done && in_time ? std::optional(size) : std::nullopt;
    }
    /* As above, in a new vector. */
    std::optional<std::vector<std::byte>> receive(timeout time = forever, on_error errors = {}) {
        std::vector<std::byte> message(message_bytes_max());
        std::optional<std::size_t> size = receive(message, time, errors);
        if (!size)
            return std::nullopt;
        message.resize(*size);
        return message;
    }
    /* Receiver: return the next message, which stays in the ring until consume; std::nullopt if none arrived
     * within `time`. */
    std::optional<const_bytes> peek(timeout time = forever, on_error errors = {}) {
        const void *message = nullptr;
        std::size_t size = 0;
        bool in_time = true;
        bool done = call(errors, [&](remo_ringbuffer *r) {
            int rc = remo_ringbuffer_peek(r, &message, &size, detail::timeout_ns(time));
            in_time = rc != -ETIMEDOUT;
            return in_time ? rc : 0;
        });
        return done && in_time ? std::optional(const_bytes(message, size)) : std::nullopt;
    }
    /* Receiver: remove the message of the last peek. */
    void consume(on_error errors = {}) {
        call(errors, [](remo_ringbuffer *r) { return remo_ringbuffer_consume(r); });
    }
    /* Receiver: acknowledge all received messages. */
    void acknowledge(on_error errors = {}) {
        call(errors, [](remo_ringbuffer *r) { return remo_ringbuffer_acknowledge(r); });
    }
};

} // namespace remo
