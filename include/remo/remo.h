/* remo.h - include all public headers of Remo. */
#pragma once

#include <remo/ack.h>
#include <remo/address.h>
#include <remo/atomic_var.h>
#include <remo/barrier.h>
#include <remo/channel.h>
#include <remo/collective.h>
#include <remo/error.h>
#include <remo/event.h>
#include <remo/heap.h>
#include <remo/kv.h>
#include <remo/lock.h>
#include <remo/log.h>
#include <remo/node.h>
#include <remo/owned_var.h>
#include <remo/queue.h>
#include <remo/region.h>
#include <remo/ringbuffer.h>
#include <remo/rpc.h>
#include <remo/sst.h>
#include <remo/structure.h>
#include <remo/table.h>
#include <remo/task.h>
#include <remo/tx.h>
#include <remo/tx_queue.h>
#include <remo/version.h>
