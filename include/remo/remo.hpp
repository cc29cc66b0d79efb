/* remo.hpp - the C++ interface (C++17 and later, header-only).
 *
 * Model:  a class per object. An instance owns the C object; it can be moved, and its destructor closes the
 *         object. Constructors open the object: parent, name, options.
 * Errors: a call without a std::error_code throws remo::error; with one as its last argument, it stores the
 *         code there. See cxx/error.hpp.
 * Cost:   that of the C calls, which the classes call inline.
 *
 *     remo::node node;
 *     remo::lock_table locks(node, "locks");
 *     remo::mutex mutex(locks, 0);
 *     std::lock_guard guard(mutex);
 */
#pragma once

#include <remo/remo.h>

#include <remo/cxx/ack.hpp>
#include <remo/cxx/bytes.hpp>
#include <remo/cxx/collective.hpp>
#include <remo/cxx/error.hpp>
#include <remo/cxx/event.hpp>
#include <remo/cxx/heap.hpp>
#include <remo/cxx/iterator.hpp>
#include <remo/cxx/kv.hpp>
#include <remo/cxx/lock.hpp>
#include <remo/cxx/node.hpp>
#include <remo/cxx/queue.hpp>
#include <remo/cxx/region.hpp>
#include <remo/cxx/shared.hpp>
#include <remo/cxx/task.hpp>
#include <remo/cxx/tree.hpp>
#include <remo/cxx/tx.hpp>
