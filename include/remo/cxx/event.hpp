/* cxx/event.hpp - a file descriptor for poll, epoll and event loops. Part of <remo/remo.hpp>.
 * Contract of each call: <remo/event.h>. */
#pragma once

#include <remo/cxx/node.hpp>
#include <remo/event.h>

namespace remo {

/* Arm the event, check for work with calls that do not block, then poll the descriptor. */
class event : public detail::handle<remo_event, remo_event_close> {
  public:
    event() noexcept = default;
    explicit event(const node &owner, on_error errors = {}) {
        errors.check(remo_event_open(owner.get(), put()));
    }
    /* Return the descriptor, or -EINVAL for an empty handle. Poll it for input; do not read, write or close
     * it. */
    int fd() const noexcept {
        return remo_event_fd(get());
    }
    /* Arm the event: the descriptor becomes unreadable until the next change. Does not block. */
    void arm(on_error errors = {}) {
        call(errors, [](remo_event *e) { return remo_event_arm(e); });
    }
};

} // namespace remo
