/* cxx/heap.hpp - the run-time allocator, and a guard for pins. Part of <remo/remo.hpp>.
 * Contract of each call: <remo/heap.h>. */
#pragma once

#include <remo/cxx/node.hpp>
#include <remo/heap.h>

namespace remo {

/* Blocks of this node's network memory, which any node reads and writes by address: node::read, node::write,
 * node::fetch_add, node::compare_swap. */
class heap : public detail::object<remo_heap, remo_heap_close, remo_heap_channel> {
  public:
    heap() noexcept = default;
    heap(channel_ref parent, const std::string &name, const remo_heap_options &options = {},
         on_error errors = {}) {
        open([&](remo_heap **h) { return remo_heap_open(parent.get(), name.c_str(), &options, h); }, errors);
    }
    /* Allocate a block, and return its address; the null address after an error. Alignment 0: 16 bytes. */
    [[nodiscard]] remo_addr alloc(std::uint64_t size_bytes, std::uint64_t alignment = 0,
                                  on_error errors = {}) {
        remo_addr address{};
        call(errors, [&](remo_heap *h) { return remo_heap_alloc(h, size_bytes, alignment, &address); });
        return address;
    }
    /* Free a block of this node immediately. Requires that no peer uses its address. */
    void free(remo_addr address, on_error errors = {}) {
        call(errors, [&](remo_heap *h) { return remo_heap_free(h, address); });
    }
    /* Free a block of this node after all currently pinned threads have unpinned. */
    void retire(remo_addr address, on_error errors = {}) {
        call(errors, [&](remo_heap *h) { return remo_heap_retire(h, address); });
    }
    /* Wait until all blocks that this node retired before are free. False: not within `time`. */
    bool reclaim(timeout time = forever, on_error errors = {}) {
        bool in_time = true;
        bool done = call(errors, [&](remo_heap *h) {
            int rc = remo_heap_reclaim(h, detail::timeout_ns(time));
            in_time = rc != -ETIMEDOUT;
            return in_time ? rc : 0;
        });
        return done && in_time;
    }
    /* Return the CPU address of a byte of this node's blocks, or nullptr. Peers may modify it. */
    void *local(remo_addr address) const noexcept {
        return remo_heap_local(get(), address);
    }
    remo_heap_sizes sizes() const noexcept {
        remo_heap_sizes sizes{};
        remo_heap_stats(get(), &sizes);
        return sizes;
    }
    /* Pin the heap in this thread; heap_pin unpins it at the end of a block. */
    void pin(on_error errors = {}) {
        call(errors, [](remo_heap *h) { return remo_heap_pin(h); });
    }
    void unpin(on_error errors = {}) {
        call(errors, [](remo_heap *h) { return remo_heap_unpin(h); });
    }
};

/* A pin of the calling thread, like a std::lock_guard: addresses that are loaded while it exists can be used
 * until its end. It refers to the heap. The destructor repeats the unpin while a write is in flight
 * (errc::timed_out); unpin() reports errors instead. */
class [[nodiscard]] heap_pin {
  public:
    explicit heap_pin(heap &pinned) : heap_(&pinned) {
        pinned.pin();
    }
    heap_pin(const heap_pin &) = delete;
    heap_pin &operator=(const heap_pin &) = delete;
    ~heap_pin() {
        std::error_code code;
        do
            unpin(code);
        while (code == errc::timed_out);
    }
    /* End the pin, and report a lost write. errc::timed_out: the thread is still pinned; repeat the call.
     * Without effect after the end of the pin. */
    void unpin(on_error errors = {}) {
        std::error_code code;
        if (heap_)
            heap_->unpin(code);
        if (code != errc::timed_out)
            heap_ = nullptr;
        if (code)
            errors.fail(-code.value(), nullptr);
        else
            errors.check(0);
    }

  private:
    heap *heap_;
};

} // namespace remo
