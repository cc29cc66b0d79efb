/* check.hpp - tests of the C++ interface: every node of a job runs one area and prints "passed". */
#pragma once

#include <remo/remo.hpp>

#include <csignal>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>

/* Time limit of calls that must succeed. */
inline constexpr remo::timeout patience = std::chrono::seconds(100);

/* Fail the area unless the condition is true. */
#define CHECK(condition)                                                                    \
    do {                                                                                    \
        if (!(condition))                                                                   \
            throw std::runtime_error(std::string(__FILE__) + ":" + std::to_string(__LINE__) \
                                     + ": not true: " #condition);                          \
    } while (0)

/* Fail the area unless the statement throws remo::error with this code and a sentence. */
#define CHECK_THROWS(statement, expected)                                                             \
    do {                                                                                              \
        std::error_code code_;                                                                        \
        std::string sentence_;                                                                        \
        try {                                                                                         \
            statement;                                                                                \
        } catch (const remo::error &error_) {                                                         \
            code_ = error_.code();                                                                    \
            sentence_ = error_.sentence();                                                            \
        }                                                                                             \
        if (code_ != (expected) || sentence_.empty())                                                 \
            throw std::runtime_error(std::string(__FILE__) + ":" + std::to_string(__LINE__)           \
                                     + ": " #statement " gives " + code_.message() + " (" + sentence_ \
                                     + ")");                                                          \
    } while (0)

struct area {
    const char *name;
    void (*body)(remo::node &node);
    void (*alone)() = nullptr; /* instead of body: the area opens its node itself */
};

/* The last node of the job crashes, after all nodes have called this. (A barrier does not suffice: a node
 * that crashes right after it may not have announced its arrival to all.) */
inline void crash_last(remo::node &node) {
    remo::atomic_var arrivals(node, "arrivals");
    if (node.rank() != node.size() - 1) {
        arrivals.fetch_add(0, 1);
        while (node.peer(node.size() - 1) == remo::peer_state::up)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        CHECK(node.peer(node.size() - 1) == remo::peer_state::dead);
        return;
    }
    while (arrivals.load() != node.size() - 1)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    kill(getpid(), SIGKILL);
}

template <std::size_t N> int run_area(int argc, char **argv, const area (&areas)[N]) {
    try {
        for (const area &a : areas) {
            if (argc != 2 || a.name != std::string(argv[1]))
                continue;
            if (a.alone) {
                a.alone();
            } else {
                remo::node node;
                a.body(node);
            }
            std::puts("passed");
            return 0;
        }
        std::fprintf(stderr, "no such area\n");
    } catch (const std::exception &e) {
        std::fprintf(stderr, "FAILED: %s\n", e.what());
    }
    return 1;
}
