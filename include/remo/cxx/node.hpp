/* cxx/node.hpp - nodes, channels, and the base of all handles. Part of <remo/remo.hpp>.
 *
 * Model:  a handle owns one C object; handles can be moved, but not copied. The destructor closes the object.
 *         A handle that was moved from, closed, or failed to open with an error code is empty. Then operator
 *         bool is false, get() is nullptr, and calls report errc::invalid_argument. get() returns the C
 *         object for calls that have no C++ form.
 * Order:  destroy objects before their channel, and channels before the node. C++ destroys local variables
 *         in this order.
 * Options: those of the C headers, all zero by default. Callbacks in them must not throw.
 */
#pragma once

#include <remo/channel.h>
#include <remo/cxx/ack.hpp>
#include <remo/cxx/bytes.hpp>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

namespace remo {

using config = remo_config;
using nodeset = remo_nodeset;

inline nodeset make_nodeset(std::initializer_list<std::uint32_t> nodes) noexcept {
    nodeset set{};
    for (std::uint32_t node : nodes)
        remo_nodeset_add(&set, node);
    return set;
}

namespace detail {
template <class Object, void (*Close)(Object *)> class handle {
  public:
    handle() noexcept = default;
    handle(handle &&other) noexcept : object_(std::exchange(other.object_, nullptr)) {
    }
    handle &operator=(handle &&other) noexcept {
        if (this != &other) {
            close();
            object_ = std::exchange(other.object_, nullptr);
        }
        return *this;
    }
    ~handle() {
        close();
    }
    explicit operator bool() const noexcept {
        return object_ != nullptr;
    }
    Object *get() const noexcept {
        return object_;
    }
    void close() noexcept {
        if (object_)
            Close(std::exchange(object_, nullptr));
    }

  protected:
    /* The destination of an open function. Callbacks may begin before the function returns. */
    Object **put() noexcept {
        return &object_;
    }
    /* Call a C function, which returns 0 or -errno. Return whether it succeeded. */
    template <class Function> bool call(on_error errors, Function &&function) const {
        if (!object_)
            return errors.fail(-EINVAL, "cannot use an empty handle: it was closed, moved from or never "
                                        "opened; open it first");
        return errors.check(function(object_));
    }
    /* Return false, without an error, if the C function returns `answer`. */
    template <class Function> bool unless(on_error errors, int answer, Function &&function) const {
        bool is_answer = false;
        bool done = call(errors, [&](Object *object) {
            int rc = function(object);
            is_answer = rc == answer;
            return is_answer ? 0 : rc;
        });
        return done && !is_answer;
    }

  private:
    Object *object_ = nullptr;
};
} // namespace detail

/* The state of a node of the job, as this node has detected it. */
enum class peer_state {
    joining = REMO_PEER_JOINING,
    up = REMO_PEER_UP,
    left = REMO_PEER_LEFT,
    dead = REMO_PEER_DEAD,
};

/* The state of the connection to a participant of a channel. */
enum class channel_state {
    waiting = REMO_CHANNEL_WAITING,
    connected = REMO_CHANNEL_CONNECTED,
    left = REMO_CHANNEL_LEFT,
    down = REMO_CHANNEL_DOWN,
};

/* A reference to a channel with another owner: the root of a node, or the channel of an object. */
class channel_ref {
  public:
    channel_ref() noexcept = default;
    explicit channel_ref(remo_channel *channel) noexcept : channel_(channel) {
    }
    remo_channel *get() const noexcept {
        return channel_;
    }
    /* Wait until every participant is connected to this channel and its sub-channels. Errors: timed_out
     * (the sentence names the missing node), protocol (options differ), host_down, not_connected. */
    void wait(timeout time = forever, on_error errors = {}) const {
        errors.check(remo_channel_wait(channel_, detail::timeout_ns(time)));
    }
    std::string name() const {
        return remo_channel_name(channel_);
    }
    nodeset participants() const noexcept {
        return channel_ ? *remo_channel_participants(channel_) : nodeset{};
    }
    channel_state peer(std::uint32_t node) const noexcept {
        return static_cast<channel_state>(remo_channel_peer(channel_, node));
    }
    remo_stats stats() const noexcept {
        remo_stats stats{};
        remo_channel_stats(channel_, &stats);
        return stats;
    }
    /* Send a message on the control stream; see remo_channel_send. */
    void send(std::uint32_t node, const_bytes message, on_error errors = {}) const {
        errors.check(remo_channel_send(channel_, node, message.data(), message.size()));
    }

  private:
    remo_channel *channel_ = nullptr;
};

/* The operations that a fence orders; see <remo/node.h>. */
enum class fence_scope {
    none = REMO_FENCE_NONE,
    pair = REMO_FENCE_PAIR,
    thread = REMO_FENCE_THREAD,
    global = REMO_FENCE_GLOBAL,
};

/* Runs at each membership change: `peer` has joined, left or failed. See on_peer of remo_config. */
using peer_callback = std::function<void(std::uint32_t peer, peer_state state)>;

/* A member of the job. It converts to its root channel, the parent of all others. */
class node : public detail::handle<remo_node, remo_node_close> {
  public:
    /* Join the job that the environment describes (remo run, mpirun, srun), else a job of one node. */
    node() : node(config{}) {
    }
    /* Join the job. Blocks until all nodes have joined. Errors: those of remo_node_open. */
    explicit node(const config &options, on_error errors = {}) {
        errors.check(remo_node_open(&options, put()));
    }
    /* As above, with a callback that replaces that of the options. It runs on the control thread, one call at
     * a time; the first calls precede the return of the constructor. It must not block, close an object, or
     * throw. */
    node(const config &options, peer_callback on_peer, on_error errors = {})
        : on_peer_(std::make_unique<peer_callback>(std::move(on_peer))) {
        config with_callback = options;
        with_callback.on_peer_ctx = on_peer_.get();
        with_callback.on_peer = [](void *callback, std::uint32_t peer, remo_peer_state state) noexcept {
            (*static_cast<peer_callback *>(callback))(peer, static_cast<peer_state>(state));
        };
        errors.check(remo_node_open(&with_callback, put()));
    }
    node(node &&) noexcept = default;
    node &operator=(node &&) noexcept = default;
    ~node() {
        close(); /* before the callback is destroyed */
    }
    std::uint32_t rank() const noexcept {
        return remo_node_rank(get());
    }
    std::uint32_t size() const noexcept {
        return remo_node_size(get());
    }
    std::string fabric() const {
        return remo_node_fabric(get());
    }
    channel_ref root() const noexcept {
        return channel_ref(remo_node_root(get()));
    }
    operator channel_ref() const noexcept {
        return root();
    }
    peer_state peer(std::uint32_t rank) const noexcept {
        return static_cast<peer_state>(remo_node_peer(get(), rank));
    }
    /* Complete and place the operations before the fence, before any operation after it. Only
     * fence_scope::pair uses `peer`. Errors: that of the first write that failed since the last fence. */
    void fence(fence_scope scope, std::uint32_t peer = 0, on_error errors = {}) {
        call(errors, [&](remo_node *n) { return remo_fence(n, remo_fence_scope(scope), peer); });
    }
    /* Read or write at an address; see <remo/node.h>. */
    void read(remo_addr address, bytes into, on_error errors = {}) {
        call(errors, [&](remo_node *n) { return remo_read(n, address, into.data(), into.size(), nullptr); });
    }
    void write(remo_addr address, const_bytes from, on_error errors = {}) {
        call(errors, [&](remo_node *n) { return remo_write(n, address, from.data(), from.size(), nullptr); });
    }
    /* Return the value of the word before the change. */
    std::uint64_t fetch_add(remo_addr address, std::uint64_t addend, on_error errors = {}) {
        std::uint64_t old = 0;
        call(errors, [&](remo_node *n) { return remo_fetch_add(n, address, addend, &old, nullptr); });
        return old;
    }
    std::uint64_t compare_swap(remo_addr address, std::uint64_t expected, std::uint64_t desired,
                               on_error errors = {}) {
        std::uint64_t old = 0;
        call(errors,
             [&](remo_node *n) { return remo_compare_swap(n, address, expected, desired, &old, nullptr); });
        return old;
    }
    remo_stats stats() const noexcept {
        remo_stats stats{};
        remo_node_stats(get(), &stats);
        return stats;
    }

  private:
    std::unique_ptr<peer_callback> on_peer_; /* at a fixed address: a move must not change it */
};

/* A channel that the program opens: a name with participants, and the parent of objects. */
class channel : public detail::handle<remo_channel, remo_channel_close> {
  public:
    channel() noexcept = default;
    /* Open it and announce it to the participants; see remo_channel_open. To add memories before the
     * announcement, use the C functions. */
    channel(channel_ref parent, const std::string &name, const std::string &type,
            const remo_channel_options &options = {}, on_error errors = {}) {
        int rc = remo_channel_open(parent.get(), name.c_str(), type.c_str(), &options, put());
        rc = rc ? rc : remo_channel_join(get());
        if (rc != 0)
            close();
        errors.check(rc);
    }
    operator channel_ref() const noexcept {
        return channel_ref(get());
    }
    channel_ref ref() const noexcept {
        return channel_ref(get());
    }
};

namespace detail {
/* An object: a handle with a channel. */
template <class Object, void (*Close)(Object *), remo_channel *(*Channel)(Object *)>
class object : public handle<Object, Close> {
  public:
    channel_ref channel() const noexcept {
        return channel_ref(this->get() ? Channel(this->get()) : nullptr);
    }

  protected:
    /* Open the object with its C function. */
    template <class Open> void open(Open &&function, on_error errors) {
        errors.check(function(this->put()));
    }
};
} // namespace detail

/* A block of this thread's pool of network memory (REMO_BUFFER_BYTES), for operations without a copy. Destroy
 * it in the thread that constructed it. */
class buffer {
  public:
    /* Errors: ENOBUFS if all REMO_BUFFERS_PER_THREAD are in use. */
    explicit buffer(const node &owner, on_error errors = {}) : node_(owner.get()) {
        errors.check(remo_buffer_get(node_, &data_));
    }
    buffer(buffer &&other) noexcept : node_(other.node_), data_(std::exchange(other.data_, nullptr)) {
    }
    buffer &operator=(buffer &&) = delete;
    ~buffer() {
        if (data_)
            remo_buffer_put(node_, data_);
    }
    std::byte *data() const noexcept {
        return static_cast<std::byte *>(data_);
    }
    std::size_t size() const noexcept {
        return data_ ? REMO_BUFFER_BYTES : 0;
    }

  private:
    remo_node *node_;
    void *data_ = nullptr;
};

} // namespace remo
