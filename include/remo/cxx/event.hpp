/* cxx/event.hpp - a file descriptor for poll, epoll and event loops. Part of <remo/remo.hpp>.
 * Contract of each call: <remo/event.h>. */
#pragma once

#include <remo/cxx/node.hpp>
#include <remo/event.h>

namespace remo {

/* Arm it, check everything that the loop waits for with calls that do not wait, then poll its descriptor. */
class event : public detail::handle<remo_event, remo_event_close> {
  public:
    event() noexcept = default;
    explicit event(const node &owner, on_error errors = {}) {
        errors.check(remo_event_open(owner.get(), put()));
    }
    /* Poll it for input; do not read, write or close it. -EINVAL for an empty handle. */
    int fd() const noexcept {
        return remo_event_fd(get());
    }
    /* Make the descriptor unreadable until something changes after this call. Does not wait. */
    void arm(on_error errors = {}) {
        call(errors, [](remo_event *e) { return remo_event_arm(e); });
    }
};

} // namespace remo
