/* ringbuffer.c - implements remo/ringbuffer.h but for open and close, which are in ring_open.c.
 * Invariant: the sender overwrites only bytes that all receivers that are up have acknowledged, and begins a
 * record only after the previous one was written to all of them.
 * The format of records is described in objects/ring_record.h. */
#include "objects/ringbuffer.h"

#include "objects/region.h"

#define RETRY_PAUSE_NS REMO__NS_PER_MS /* between attempts to acknowledge */
#define RELAX_PER_MESSAGE 16u          /* of the last batch, before the receiver probes for the next one */
#define RELAX_MAX 128u                 /* of a pause */
#define RELAX_CAPACITY \
    1024u                   /* bytes of a ring for each: the sender of a small ring would fill it meanwhile */
#define PREFETCH_BYTES 128u /* from the end of a record to the line that its send fetches for later ones */

/* The parts of a send and of a receive are inline; what most messages do not need is not. */
#define INLINE inline __attribute__((always_inline))
#define OUT_OF_LINE __attribute__((noinline))

struct remo_channel *remo_ringbuffer_channel(struct remo_ringbuffer *ring) {
    return ring ? ring->channel : NULL;
}

size_t remo_ringbuffer_message_bytes_max(const struct remo_ringbuffer *ring) {
    return ring ? remo__record_message_max(ring->cursor.capacity) : 0;
}

static const char *name_of(const struct remo_ringbuffer *ring) {
    return remo_channel_name(ring->channel);
}

/* Set *ret_ref to `offset` of the ring at a receiver. Errors: those of remo__memory_find. */
static INLINE int find_record(const struct remo_ringbuffer *ring, uint32_t node, uint64_t offset,
                              struct remo__ref *ret_ref) {
    return remo__find_for_caller(ring->records, ring->node, node, offset, ret_ref);
}

/* ---- the sender ---- */

/* Return whether the receiver has failed, or has left the job or the ring. */
static INLINE bool has_departed(const struct remo_ringbuffer *ring, uint32_t node) {
    return remo__unlikely(!remo__channel_is_connected(ring->channel, node))
           && remo_channel_peer(ring->channel, node) > REMO_CHANNEL_CONNECTED;
}

static OUT_OF_LINE int write_immediate(struct remo_ringbuffer *ring, struct remo__ref ref, uint64_t bytes) {
    return remo__channel_write_immediate(ring->channel, ref, ring->image, bytes, 0, NULL);
}

/* Write `bytes` of `image` to a receiver. Return 0 if they were written, or the receiver has departed. */
static INLINE int write_image(struct remo_ringbuffer *ring, struct remo__ref ref, uint64_t bytes) {
    bool immediate = ring->on_arrival && (uint32_t)ring->image[0] != REMO__RECORD_FILLER;
    int rc = remo__unlikely(immediate) ? write_immediate(ring, remo__ref_in_memory(ref), bytes)
                                       : remo__write(ref, ring->image, bytes, REMO__WRITE_NOTIFY, NULL);
    return remo__is_departure(rc) ? 0 : rc;
}

static int write_pending_to(struct remo_ringbuffer *ring, uint32_t node) {
    struct remo__ref ref;
    if (has_departed(ring, node))
        return 0;
    int rc = find_record(ring, node, ring->pending_offset, &ref);
    if (rc != 0)
        return remo__is_departure(rc) ? 0 : rc;
    return write_image(ring, ref, ring->pending_bytes);
}

/* Write `image` to the receivers that do not have it yet. The next record is not sent before all have it. */
static OUT_OF_LINE int write_pending(struct remo_ringbuffer *ring) {
    int rc = 0;
    ring->has_pending = false;
    for (uint32_t i = 0; i < ring->receiver_count; i++) {
        struct remo__ring_receiver *receiver = &ring->receivers[i];
        int one = receiver->is_pending ? write_pending_to(ring, receiver->node) : 0;
        receiver->is_pending = one != 0;
        ring->has_pending |= receiver->is_pending;
        rc = rc ? rc : one;
    }
    return rc;
}

/* Send a record from `image`. */
static OUT_OF_LINE int send_image(struct remo_ringbuffer *ring, uint32_t size, const void *payload) {
    ring->pending_offset = ring->cursor.offset;
    ring->pending_bytes = remo__record_encode(ring->image, &ring->cursor, size, payload);
    for (uint32_t i = 0; i < ring->receiver_count; i++)
        ring->receivers[i].is_pending = true;
    return write_pending(ring);
}

/* Return where the payload of the record at the cursor is in the memory of a receiver; NULL: the receiver is
 * not mapped. */
static INLINE char *mapped_payload(const struct remo_ringbuffer *ring, uint32_t node) {
    return (char *)(uintptr_t)remo__memory_mapped(ring->records, node,
                                                  ring->cursor.offset + REMO__RECORD_HEADER_BYTES);
}

/* The receiver polls the first line of the record, and fetches the second one meanwhile (has_arrived). Get
 * both back at the same time, instead of one after the other. */
static INLINE void prefetch_lines(const char *record) {
    remo__mapped_prefetch_write(record);
    remo__mapped_prefetch_write(record + REMO__CACHE_LINE);
}

/* Write the header of a sealed record after its payload. All stores of a thread leave its processor in order.
 * They wait there for the lines of the ring, which the receiver has read. So a send stores little else: the
 * header goes from registers to its place. */
static INLINE void store_header(const struct remo_ringbuffer *ring, char *payload, uint32_t size) {
    uint64_t head = remo__record_head(&ring->cursor, size), seal = remo__record_seal(&ring->cursor, head);
    char *record = payload - REMO__RECORD_HEADER_BYTES;
    remo__mapped_copy_to(record + sizeof head, &seal, sizeof seal);
    remo__mapped_copy_to(record, &head, sizeof head);
}

/* Count the record that was stored at a receiver, and notify the receiver. */
static INLINE void finish_record(const struct remo_ringbuffer *ring, struct remo__thread *thread,
                                 uint32_t node, uint64_t payload_bytes) {
    remo__stored(thread, remo__channel_counters(ring->channel, thread), node,
                 REMO__RECORD_HEADER_BYTES + payload_bytes);
}

/* Write a sealed record to a receiver that is mapped. */
static INLINE void write_sealed(const struct remo_ringbuffer *ring, struct remo__thread *thread,
                                uint32_t node, char *to, uint32_t size, const char *payload) {
    uint32_t payload_bytes = size == REMO__RECORD_FILLER ? 0 : size;
    prefetch_lines(to - REMO__RECORD_HEADER_BYTES);
    if (to != payload)
        remo__copy_to(to, payload, payload_bytes);
    remo__mapped_prefetch_write(to + payload_bytes + PREFETCH_BYTES);
    store_header(ring, to, size);
    finish_record(ring, thread, node, payload_bytes);
}

/* Write a sealed record to a receiver by an operation that may fail. After an error the payload is complete,
 * and the header in `image` is still to be written. `thread` NULL: the thread could not be attached. */
static OUT_OF_LINE int post_sealed(struct remo_ringbuffer *ring, struct remo__thread *thread,
                                   struct remo__ring_receiver *receiver, char *to, uint32_t size,
                                   const char *payload) {
    uint32_t payload_bytes = size == REMO__RECORD_FILLER ? 0 : size;
    int rc = thread ? 0 : remo__last_code();
    struct remo__ref ref;
    remo__record_encode_sealed(ring->image, &ring->cursor, size);
    if (to != payload)
        remo__copy_to(to, payload, payload_bytes);
    if (rc == 0)
        rc = find_record(ring, receiver->node, ring->cursor.offset, &ref);
    if (rc == 0) {
        remo__count(&ref.stats->bytes, payload_bytes);
        rc = write_image(ring, ref, REMO__RECORD_HEADER_BYTES);
    }
    if (rc == 0 || remo__is_departure(rc))
        return 0;
    receiver->is_pending = ring->has_pending = true;
    ring->pending_offset = ring->cursor.offset;
    ring->pending_bytes = REMO__RECORD_HEADER_BYTES;
    return rc;
}

/* Send a sealed record to all receivers. */
static INLINE int send_sealed(struct remo_ringbuffer *ring, uint32_t size, const void *payload) {
    struct remo__thread *thread = remo__thread(ring->node);
    int rc = 0;
    for (uint32_t i = 0; i < ring->receiver_count; i++) {
        struct remo__ring_receiver *receiver = &ring->receivers[i];
        char *to = has_departed(ring, receiver->node) ? NULL : mapped_payload(ring, receiver->node);
        if (remo__unlikely(!to))
            continue;
        if (remo__likely(thread && (!ring->on_arrival || size == REMO__RECORD_FILLER)))
            write_sealed(ring, thread, receiver->node, to, size, payload);
        else {
            int one = post_sealed(ring, thread, receiver, to, size, payload);
            rc = rc ? rc : one;
        }
    }
    return rc;
}

static INLINE int send_record(struct remo_ringbuffer *ring, uint32_t size, const void *payload) {
    int rc = remo__likely(ring->cursor.guard == REMO__RECORD_SEAL) ? send_sealed(ring, size, payload)
                                                                   : send_image(ring, size, payload);
    if (size == REMO__RECORD_FILLER)
        remo__ring_next_lap(&ring->cursor);
    else
        remo__ring_advance(&ring->cursor, remo__record_bytes(size));
    return rc;
}

/* Fill the rest of the lap. */
static OUT_OF_LINE int send_filler(struct remo_ringbuffer *ring) {
    return send_record(ring, REMO__RECORD_FILLER, NULL);
}

/* Find the position that all receivers that are up have consumed. A position beyond the last message is
 * invalid, and ignored. */
static void update_consumed(struct remo_ringbuffer *ring) {
    uint64_t least = ring->cursor.position;
    for (uint32_t i = 0; i < ring->receiver_count; i++) {
        struct remo__ring_receiver *receiver = &ring->receivers[i];
        if (has_departed(ring, receiver->node))
            continue;
        uint64_t position = remo__load(ring->consumed->own + receiver->node * REMO__CACHE_LINE);
        if (position > receiver->consumed && position <= ring->cursor.position)
            receiver->consumed = position;
        least = remo__min(least, receiver->consumed);
    }
    ring->consumed_by_all = least;
}

struct room {
    struct remo_ringbuffer *ring;
    uint64_t bytes;      /* needed bytes; in is_received: the position to reach */
    uint32_t late_index; /* receivers before this index have opened the ring */
};

static int have_all_opened(struct room *room) {
    struct remo_ringbuffer *ring = room->ring;
    for (; room->late_index < ring->receiver_count; room->late_index++) {
        if (remo_channel_peer(ring->channel, ring->receivers[room->late_index].node) == REMO_CHANNEL_WAITING)
            return 0;
    }
    ring->all_opened = true;
    return 1;
}

static int has_room(void *ctx) {
    struct room *room = ctx;
    struct remo_ringbuffer *ring = room->ring;
    if (!ring->all_opened) {
        int rc = remo__channel_check_match(ring->channel);
        if (rc != 0 || !have_all_opened(room))
            return rc;
    }
    update_consumed(ring);
    return ring->cursor.position + room->bytes - ring->consumed_by_all <= ring->cursor.capacity;
}

static OUT_OF_LINE int await_room(struct remo_ringbuffer *ring, uint64_t bytes, uint64_t timeout_ns) {
    struct room room = {.ring = ring, .bytes = bytes};
    int rc = remo__wait(ring->node, has_room, &room, remo__deadline(timeout_ns));
    if (rc != -ETIMEDOUT)
        return rc;
    if (!ring->all_opened)
        return remo__fail(rc, "node %u has not opened ring %s yet; nothing was sent",
                          ring->receivers[room.late_index].node, name_of(ring));
    return remo__fail(
        rc, "ring %s is full: its slowest receiver has not acknowledged %llu bytes; nothing was sent",
        name_of(ring), (unsigned long long)(ring->cursor.position - ring->consumed_by_all));
}

/* Wait until the next `bytes` of the ring may be overwritten at every receiver. */
static INLINE int make_room(struct remo_ringbuffer *ring, uint64_t bytes, uint64_t timeout_ns) {
    bool has_room_now = ring->cursor.position + bytes - ring->consumed_by_all <= ring->cursor.capacity;
    return remo__likely(ring->all_opened && has_room_now) ? 0 : await_room(ring, bytes, timeout_ns);
}

static int check_sender(const struct remo_ringbuffer *ring) {
    if (!ring->is_sender)
        return remo__fail(-EPERM, "node %u is the sender of ring %s; this node can only receive",
                          ring->sender, name_of(ring));
    return 0;
}

static INLINE int check_send(const struct remo_ringbuffer *ring, size_t size_bytes) {
    if (remo__unlikely(!ring->is_sender))
        return check_sender(ring);
    if (remo__unlikely(size_bytes > remo__record_message_max(ring->cursor.capacity)))
        return remo__fail(-EMSGSIZE, "a message of %zu bytes is too long for ring %s: the maximum is %zu",
                          size_bytes, name_of(ring), remo_ringbuffer_message_bytes_max(ring));
    if (remo__unlikely(ring->loan != NULL))
        return remo__fail(-EBUSY, "cannot send on ring %s: a message is loaned; commit it first",
                          name_of(ring));
    return 0;
}

/* Wait until the cursor is at a place with room for a message. */
static INLINE int prepare_send(struct remo_ringbuffer *ring, size_t size_bytes, uint64_t timeout_ns) {
    int rc = check_send(ring, size_bytes);
    if (rc == 0 && remo__unlikely(ring->has_pending))
        rc = write_pending(ring);
    if (remo__unlikely(rc != 0))
        return rc;
    uint64_t bytes = remo__record_bytes((uint32_t)size_bytes);
    uint64_t left = ring->cursor.capacity - ring->cursor.offset;
    uint64_t filler = bytes > left ? left : 0;
    rc = make_room(ring, filler + bytes, timeout_ns);
    return rc == 0 && remo__unlikely(filler > 0) ? send_filler(ring) : rc;
}

/* The message counts as sent: the next call repeats a write that failed, or returns its error. */
static INLINE void send_message(struct remo_ringbuffer *ring, const void *message, size_t size_bytes,
                                uint64_t *ret_position) {
    (void)send_record(ring, (uint32_t)size_bytes, message);
    if (ret_position)
        *ret_position = ring->cursor.position;
}

/* Send a short message to the only receiver, which is mapped and has room. Returns false, without effect, if
 * anything is different. There is no call on this path, so it saves no registers on the stack either. */
static INLINE bool send_directly(struct remo_ringbuffer *ring, const void *message, size_t size_bytes,
                                 uint64_t *ret_position) {
    uint64_t bytes = remo__record_bytes((uint32_t)size_bytes), position = ring->cursor.position + bytes;
    if (size_bytes >= ring->direct_bytes_end || bytes > ring->cursor.capacity - ring->cursor.offset
        || position - ring->consumed_by_all > ring->cursor.capacity || ring->loan || ring->has_pending
        || !ring->all_opened || (!message && size_bytes > 0) || remo__tls.node_id != ring->node->id)
        return false;
    uint32_t node = ring->receivers[0].node;
    char *to = remo__channel_is_connected(ring->channel, node) ? mapped_payload(ring, node) : NULL;
    if (!to)
        return false;
    prefetch_lines(to - REMO__RECORD_HEADER_BYTES);
    remo__mapped_words_to(to, message, size_bytes);
    remo__mapped_prefetch_write(to + size_bytes + PREFETCH_BYTES);
    store_header(ring, to, (uint32_t)size_bytes);
    remo__ring_advance(&ring->cursor, bytes);
    if (ret_position)
        *ret_position = position;
    finish_record(ring, remo__tls.thread, node, size_bytes);
    return true;
}

static OUT_OF_LINE int send_slowly(struct remo_ringbuffer *ring, const void *message, size_t size_bytes,
                                   uint64_t timeout_ns, uint64_t *ret_position) {
    REMO__REQUIRE(ring);
    if (!message && size_bytes > 0)
        return remo__fail(-EINVAL, "cannot send on ring %s: the message is NULL", name_of(ring));
    int rc = prepare_send(ring, size_bytes, timeout_ns);
    if (rc == 0)
        send_message(ring, message, size_bytes, ret_position);
    return rc;
}

int remo_ringbuffer_send(struct remo_ringbuffer *ring, const void *message, size_t size_bytes,
                         uint64_t timeout_ns, uint64_t *ret_position) {
    if (remo__likely(ring && send_directly(ring, message, size_bytes, ret_position)))
        return 0;
    return send_slowly(ring, message, size_bytes, timeout_ns, ret_position);
}

int remo_ringbuffer_loan(struct remo_ringbuffer *ring, size_t size_bytes, uint64_t timeout_ns,
                         void **ret_message) {
    REMO__REQUIRE(ring);
    REMO__REQUIRE(ret_message);
    int rc = prepare_send(ring, size_bytes, timeout_ns);
    if (rc != 0)
        return rc;
    ring->loan = ring->receiver_count == 1 && !has_departed(ring, ring->receivers[0].node)
                     ? mapped_payload(ring, ring->receivers[0].node)
                     : NULL;
    if (!ring->loan)
        ring->loan = (char *)ring->image + REMO__RECORD_HEADER_BYTES;
    ring->loan_bytes = size_bytes;
    *ret_message = ring->loan;
    return 0;
}

int remo_ringbuffer_commit(struct remo_ringbuffer *ring, size_t size_bytes, uint64_t *ret_position) {
    REMO__REQUIRE(ring);
    int rc = check_sender(ring);
    if (rc != 0)
        return rc;
    if (!ring->loan)
        return remo__fail(-EINVAL, "cannot commit a message of ring %s: none is loaned", name_of(ring));
    if (size_bytes > ring->loan_bytes)
        return remo__fail(-EMSGSIZE,
                          "cannot commit a message of ring %s: it has %zu bytes, but %zu were loaned",
                          name_of(ring), size_bytes, ring->loan_bytes);
    const char *message = ring->loan;
    ring->loan = NULL;
    send_message(ring, message, size_bytes, ret_position);
    return 0;
}

int remo_ringbuffer_cancel(struct remo_ringbuffer *ring) {
    REMO__REQUIRE(ring);
    int rc = check_sender(ring);
    if (rc == 0)
        ring->loan = NULL;
    return rc;
}

static int is_received(void *ctx) {
    const struct room *room = ctx;
    update_consumed(room->ring);
    return room->ring->consumed_by_all >= room->bytes;
}

int remo_ringbuffer_wait_received(struct remo_ringbuffer *ring, uint64_t position, uint64_t timeout_ns) {
    REMO__REQUIRE(ring);
    struct room room = {.ring = ring, .bytes = position};
    int rc = check_sender(ring);
    if (rc != 0)
        return rc;
    if (position > ring->cursor.position)
        return remo__fail(-EINVAL, "cannot wait for position %llu of ring %s: the sender is at %llu",
                          (unsigned long long)position, name_of(ring),
                          (unsigned long long)ring->cursor.position);
    if (ring->has_pending)
        rc = write_pending(ring);
    return rc != 0 ? rc : remo__wait(ring->node, is_received, &room, remo__deadline(timeout_ns));
}

/* ---- a receiver ---- */

struct arrival {
    struct remo_ringbuffer *ring;
    void *buffer;
    size_t buffer_bytes;
};

/* Return 1 if a message has arrived; it is in the buffer, or in `image`. A valid ring never has two fillers
 * in a row. */
static INLINE int probe_record(const struct arrival *arrival) {
    struct remo_ringbuffer *ring = arrival->ring;
    const char *memory = ring->records->own;
    for (uint32_t record = 0; record < 2; record++) {
        enum remo__record_kind kind = remo__record_decode(
            memory, &ring->cursor, arrival->buffer, arrival->buffer_bytes, ring->image, &ring->found_bytes);
        if (kind != REMO__RECORD_FILLING)
            return kind == REMO__RECORD_MESSAGE;
        remo__ring_next_lap(&ring->cursor);
    }
    return 0;
}

static int has_arrived(void *ctx) {
    const struct arrival *arrival = ctx;
    if (probe_record(arrival))
        return 1;
    const struct remo_ringbuffer *ring = arrival->ring;
    const struct remo_channel *channel = ring->channel;
    /* the second line of the record: a short message then arrives in the time of one line */
    __builtin_prefetch(ring->records->own + ring->cursor.offset + REMO__CACHE_LINE);
    if (remo__likely(remo__channel_is_connected(channel, arrival->ring->sender)))
        return 0;
    int rc = remo__channel_check_peer(channel, arrival->ring->sender);
    /* Messages that the sender sent before it failed or left are received first. */
    return rc != 0 && probe_record(arrival) ? 1 : rc;
}

static bool is_acknowledgement_due(const struct remo_ringbuffer *ring) {
    return ring->cursor.position - ring->acknowledged >= ring->cursor.capacity / 2;
}

/* Wait for a message. If the last acknowledgement failed, the sender may have no room for the message: repeat
 * the acknowledgement until it succeeds. Its errors are ignored: has_arrived returns those of the sender. */
static OUT_OF_LINE int await_message(struct arrival *arrival, uint64_t timeout_ns) {
    struct remo_ringbuffer *ring = arrival->ring;
    uint64_t deadline_ns = remo__deadline(timeout_ns);
    while (is_acknowledgement_due(ring) && remo_ringbuffer_acknowledge(ring) != 0) {
        uint64_t pause_end_ns = remo__min(deadline_ns, remo__deadline(RETRY_PAUSE_NS));
        int rc = remo__wait(ring->node, has_arrived, arrival, pause_end_ns);
        if (rc != -ETIMEDOUT || remo__remaining_ns(deadline_ns) == 0)
            return rc;
    }
    return remo__wait(ring->node, has_arrived, arrival, deadline_ns);
}

static int check_receiver(const struct remo_ringbuffer *ring) {
    if (remo__unlikely(ring->is_sender))
        return remo__fail(-EPERM, "this node cannot receive from ring %s: it is the sender", name_of(ring));
    return 0;
}

/* All messages that had arrived are received. The more there were, the more probably the sender is in the
 * middle of a stream. So pause in proportion: a probe takes a line that the sender is about to write. A pause
 * is longer than the sender needs for as many messages, so that batches grow up to the longest pause. */
static void await_batch(const struct remo_ringbuffer *ring, uint64_t messages) {
    uint64_t most = remo__min(RELAX_MAX, ring->cursor.capacity / RELAX_CAPACITY);
    remo__relax_awake(ring->node, (uint32_t)remo__min(RELAX_PER_MESSAGE * messages, most));
}

/* The last message came alone, such as a request or a reply. Pause; return whether the next one is there. */
static bool await_single(const struct arrival *arrival) {
    struct remo_ringbuffer *ring = arrival->ring;
    remo__relax_awake(ring->node, ring->pause / REMO__PAUSE_UNIT);
    bool is_there = probe_record(arrival) != 0;
    ring->pause = remo__pause_learn(ring->pause, !is_there);
    return is_there;
}

/* Pause before the first wait. Returns true if it has found a message; after a batch it does not probe. */
static OUT_OF_LINE bool pause_awake(const struct arrival *arrival) {
    struct remo_ringbuffer *ring = arrival->ring;
    uint64_t batch_bytes = ring->cursor.position - ring->caught_up;
    uint64_t messages = batch_bytes / remo__record_bytes(ring->found_bytes);
    ring->caught_up = ring->cursor.position;
    if (messages == 1)
        return await_single(arrival);
    await_batch(ring, messages);
    return false;
}

/* Wait until a message is at the cursor. */
static INLINE int find_message(struct arrival *arrival, uint64_t timeout_ns) {
    int rc = check_receiver(arrival->ring);
    if (remo__unlikely(rc != 0))
        return rc;
    if (probe_record(arrival))
        return 0;
    if (timeout_ns > 0 && pause_awake(arrival))
        return 0;
    return await_message(arrival, timeout_ns);
}

static INLINE void consume_message(struct remo_ringbuffer *ring) {
    remo__ring_advance(&ring->cursor, remo__record_bytes(ring->found_bytes));
    ring->is_peeked = false;
    if (is_acknowledgement_due(ring))
        (void)remo_ringbuffer_acknowledge(ring); /* the next receive repeats one that failed */
}

static OUT_OF_LINE int acknowledge_consumed(struct remo_ringbuffer *ring) {
    (void)remo_ringbuffer_acknowledge(ring); /* the next receive repeats one that failed */
    return 0;
}

/* Receive a short sealed message that has arrived. Returns false, without effect, if anything is
 * different. */
static INLINE bool receive_directly(struct remo_ringbuffer *ring, void *buffer, size_t buffer_bytes,
                                    size_t *ret_size_bytes) {
    if (ring->direct_bytes_end == 0 || ring->is_sender || ring->is_peeked || !ret_size_bytes)
        return false;
    const char *record = ring->records->own + ring->cursor.offset;
    uint64_t head = remo__load(record), seal = remo__load(record + sizeof head); /* before the payload */
    uint32_t size = (uint32_t)head;
    if (head >> 32 != ring->cursor.lap || size >= ring->direct_bytes_end || size > buffer_bytes || !buffer
        || seal != remo__record_seal(&ring->cursor, head)
        || remo__record_bytes(size) > ring->cursor.capacity - ring->cursor.offset)
        return false;
    remo__mapped_words_from(buffer, record + REMO__RECORD_HEADER_BYTES, size);
    *ret_size_bytes = ring->found_bytes = size;
    remo__ring_advance(&ring->cursor, remo__record_bytes(size));
    return true;
}

static OUT_OF_LINE int receive_slowly(struct remo_ringbuffer *ring, void *buffer, size_t buffer_bytes,
                                      size_t *ret_size_bytes, uint64_t timeout_ns) {
    REMO__REQUIRE(ring);
    struct arrival arrival = {.ring = ring, .buffer = buffer, .buffer_bytes = buffer ? buffer_bytes : 0};
    if (remo__unlikely(!ret_size_bytes))
        return remo__fail(-EINVAL, "cannot receive from ring %s: ret_size_bytes is NULL", name_of(ring));
    int rc = find_message(&arrival, timeout_ns);
    if (rc != 0)
        return rc;
    *ret_size_bytes = ring->found_bytes;
    if (ring->found_bytes > arrival.buffer_bytes)
        return remo__fail(
            -EMSGSIZE,
            "cannot receive from ring %s: the message has %u bytes, the buffer %zu; use a larger buffer",
            name_of(ring), ring->found_bytes, arrival.buffer_bytes);
    consume_message(ring);
    return 0;
}

int remo_ringbuffer_receive(struct remo_ringbuffer *ring, void *buffer, size_t buffer_bytes,
                            size_t *ret_size_bytes, uint64_t timeout_ns) {
    if (remo__likely(ring && receive_directly(ring, buffer, buffer_bytes, ret_size_bytes)))
        return remo__unlikely(is_acknowledgement_due(ring)) ? acknowledge_consumed(ring) : 0;
    return receive_slowly(ring, buffer, buffer_bytes, ret_size_bytes, timeout_ns);
}

int remo_ringbuffer_peek(struct remo_ringbuffer *ring, const void **ret_message, size_t *ret_size_bytes,
                         uint64_t timeout_ns) {
    REMO__REQUIRE(ring);
    REMO__REQUIRE(ret_message);
    REMO__REQUIRE(ret_size_bytes);
    struct arrival arrival = {.ring = ring};
    int rc = find_message(&arrival, timeout_ns);
    if (rc != 0)
        return rc;
    bool is_in_place = ring->cursor.guard == REMO__RECORD_SEAL;
    *ret_message = is_in_place ? ring->records->own + ring->cursor.offset + REMO__RECORD_HEADER_BYTES
                               : (char *)ring->image;
    *ret_size_bytes = ring->found_bytes;
    ring->is_peeked = true;
    return 0;
}

int remo_ringbuffer_consume(struct remo_ringbuffer *ring) {
    REMO__REQUIRE(ring);
    int rc = check_receiver(ring);
    if (rc != 0)
        return rc;
    if (!ring->is_peeked)
        return remo__fail(-EINVAL, "cannot consume a message of ring %s: none was peeked", name_of(ring));
    consume_message(ring);
    return 0;
}

int remo_ringbuffer_acknowledge(struct remo_ringbuffer *ring) {
    REMO__REQUIRE(ring);
    if (ring->is_sender)
        return remo__fail(-EPERM, "this node cannot acknowledge messages of ring %s: it is the sender",
                          name_of(ring));
    if (ring->acknowledged == ring->cursor.position)
        return 0;
    struct remo__ref ref;
    int rc = remo__find_for_caller(ring->consumed, ring->node, ring->sender,
                                   ring->node->rank * REMO__CACHE_LINE, &ref);
    if (rc == 0)
        rc = remo__order_writes(ref.thread, ring->last_acknowledger, ring->sender);
    if (rc != 0)
        return rc;
    ring->last_acknowledger = ref.thread;
    rc = remo__write(ref, &ring->cursor.position, sizeof ring->cursor.position, REMO__WRITE_NOTIFY, NULL);
    if (rc == 0)
        ring->acknowledged = ring->cursor.position;
    return rc;
}
