/* cxx/task.hpp - cooperative tasks: many waits in one thread. Part of <remo/remo.hpp>.
 * Contract of each call: <remo/task.h>. Inside a `catch` block a task must not wait: the C++ runtime keeps
 * the exceptions that a thread handles in one stack. */
#pragma once

#include <remo/cxx/node.hpp>
#include <remo/task.h>

#include <exception>
#include <memory>
#include <type_traits>
#include <utility>

namespace remo {

namespace detail {
inline void close_scheduler(remo_scheduler *scheduler) {
    (void)remo_scheduler_close(scheduler);
}
} // namespace detail

/* A task that was spawned. It can be moved, and its destructor joins it. Use it in its scheduler's thread,
 * and destroy it before the scheduler. */
class task {
  public:
    task() noexcept = default;
    task(task &&other) noexcept
        : scheduler_(other.scheduler_), id_(std::exchange(other.id_, 0)), body_(std::move(other.body_)) {
    }
    task &operator=(task &&other) noexcept {
        if (this != &other) {
            finish();
            scheduler_ = other.scheduler_;
            id_ = std::exchange(other.id_, 0);
            body_ = std::move(other.body_);
        }
        return *this;
    }
    ~task() {
        finish();
    }
    /* Return whether there is a task to join. */
    bool joinable() const noexcept {
        return id_ != 0;
    }
    /* Wait until the task has ended. An exception of its function reaches the caller. */
    void join(timeout time = forever, on_error errors = {}) {
        int rc = remo_task_join(scheduler_, id_, detail::timeout_ns(time), nullptr);
        if (rc == 0) {
            id_ = 0;
            std::unique_ptr<body> ended = std::move(body_);
            if (ended->thrown)
                std::rethrow_exception(ended->thrown);
        }
        errors.check(rc);
    }

  private:
    friend class scheduler;
    struct body {
        virtual ~body() = default;
        virtual void run() = 0;
        std::exception_ptr thrown;
    };
    template <class Run> struct body_of final : body {
        explicit body_of(Run &&run_of) : function(std::forward<Run>(run_of)) {
        }
        void run() override {
            function();
        }
        std::decay_t<Run> function;
    };
    /* An exception must not leave the stack of the task, so it is stored until the join. */
    static int run(void *context) {
        auto *self = static_cast<body *>(context);
        try {
            self->run();
        } catch (...) {
            self->thrown = std::current_exception();
        }
        return 0;
    }
    void finish() noexcept {
        if (id_ != 0)
            (void)remo_task_join(scheduler_, std::exchange(id_, 0), REMO_FOREVER, nullptr);
    }

    remo_scheduler *scheduler_ = nullptr;
    remo_task_id id_ = 0;
    std::unique_ptr<body> body_;
};

/* The scheduler of the calling thread. */
class scheduler : public detail::handle<remo_scheduler, detail::close_scheduler> {
  public:
    scheduler() noexcept = default;
    explicit scheduler(const node &owner, const remo_scheduler_options &options = {}, on_error errors = {}) {
        errors.check(remo_scheduler_open(owner.get(), &options, put()));
    }
    /* Add a task that calls `run()`. It runs when the caller waits or yields. */
    template <class Run> task spawn(Run &&run, on_error errors = {}) {
        task spawned;
        spawned.scheduler_ = get();
        spawned.body_ = std::make_unique<task::body_of<Run>>(std::forward<Run>(run));
        errors.check(remo_task_spawn(get(), task::run, spawned.body_.get(), &spawned.id_));
        return spawned;
    }
};

/* Let all other tasks of this thread that can run do so once. */
inline void yield() noexcept {
    remo_task_yield();
}

} // namespace remo
