/* mapped.h - the operations of a fabric whose peers' memory has a CPU address, as inline functions.
 *
 * The node's fast path and the post of the shm fabric share this code.
 *
 * Tearing: a naturally aligned word of 1, 2, 4 or 8 bytes in the peer's memory is moved by one access if it
 *          is the whole transfer, or lies in a transfer that starts at a multiple of 8. Up to
 *          REMO__MAPPED_WORDS_BYTES a loop loads word by word, and stores one or two words at once. Above,
 *          memcpy moves whole cache lines or vectors. x86-64 and aarch64 split none of these stores inside an
 *          aligned word. The order of the words is undefined (memory model, row 15). A small transfer from
 *          another address may move a byte twice.
 * Order:   `copy_to` is ordered after this thread's earlier accesses, `copy_from` before its later ones.
 *          Stores may remain in this CPU's store buffer: only `remo__mapped_fence` or an atomic places
 *          them before a later load is executed.
 * Cost:    8 bytes of constant size: one load and one store. No call, no lock and no system call, except in a
 *          notify that finds a sleeper. */
#ifndef REMO_FABRIC_MAPPED_H
#define REMO_FABRIC_MAPPED_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/bits.h"
#include "base/threads_fence.h"
#include "fabric/fabric.h"

/* Above this size memcpy is faster than a loop over words. Up to it the loop is as fast, and splits no
 * word. */
#define REMO__MAPPED_WORDS_BYTES 128u

/* glibc copies up to about 2 KiB with vectors, and more with rep movsb, which starts slowly: 4 KiB in two
 * pieces take 18 ns instead of 30. Data larger than the first-level cache gains nothing from pieces. */
#define REMO__MAPPED_PIECE_BYTES 2048u
#define REMO__MAPPED_PIECES_BYTES 16384u

/* Races on peers' memory are intended, so ThreadSanitizer must not check the copies. It intercepts memcpy
 * even in functions that it does not check, so its builds copy large data by hand. It does check atomics and
 * 8-byte words: threads of one node synchronise through them. */
#if defined(__SANITIZE_THREAD__)
#define REMO__MAPPED_INLINE static inline __attribute__((unused))
#define REMO__MAPPED_RACY static inline __attribute__((no_sanitize("thread"), unused))
#else
#define REMO__MAPPED_INLINE static inline __attribute__((always_inline, unused))
#define REMO__MAPPED_RACY REMO__MAPPED_INLINE
#endif

/* Words at any address, of any declared type. `volatile` makes each access one instruction. */
typedef uint64_t __attribute__((may_alias, aligned(1))) remo__word64;
typedef uint32_t __attribute__((may_alias, aligned(1))) remo__word32;
typedef uint16_t __attribute__((may_alias, aligned(1))) remo__word16;

#ifdef REMO_SIM
void remo__sim_fence(void);
void remo__sim_turn(const char *what);   /* the scheduler may switch here */
void remo__sim_atomic(const void *word); /* the scheduler may switch here; an atomic on the word follows */
void remo__copy_from(void *dst, const void *network, size_t bytes); /* of fabric/access.h */
void remo__copy_to(void *network, const void *src, size_t bytes);
#endif
/* Full fence: all earlier stores of this thread are visible to every CPU of this machine before a later
 * load. */
REMO__MAPPED_INLINE void remo__mapped_fence(void) {
#if defined(REMO_SIM)
    remo__sim_fence();
#elif defined(__SANITIZE_THREAD__)
    _Atomic uint32_t word = 0; /* ThreadSanitizer does not support fences, and warns */
    atomic_fetch_add(&word, 0);
#elif defined(__x86_64__)
    /* Compilers lock the word at the stack pointer; a pop or return then waits for the fence. This word is in
     * another cache line, and does not change. */
    __asm__ volatile("lock orl $0, -64(%%rsp)" ::: "memory", "cc");
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

REMO__MAPPED_INLINE void remo__mapped_release(void) {
#if !defined(__SANITIZE_THREAD__)
    atomic_thread_fence(memory_order_release);
#elif defined(__aarch64__)
    __asm__ volatile("dmb ish" ::: "memory");
#endif
}

REMO__MAPPED_INLINE void remo__mapped_acquire(void) {
#if !defined(__SANITIZE_THREAD__)
    atomic_thread_fence(memory_order_acquire);
#elif defined(__aarch64__)
    __asm__ volatile("dmb ishld" ::: "memory");
#endif
}

REMO__MAPPED_RACY void remo__mapped_bulk(void *to, const void *from, size_t size_bytes) {
#if defined(__SANITIZE_THREAD__) && defined(__x86_64__)
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size_bytes) : : "memory");
#elif defined(__SANITIZE_THREAD__)
    for (size_t i = 0; i < size_bytes; i++)
        ((volatile char *)to)[i] = ((const volatile char *)from)[i];
#else
    size_t piece = size_bytes > REMO__MAPPED_PIECES_BYTES ? size_bytes : REMO__MAPPED_PIECE_BYTES;
    __asm__("" : "+r"(size_bytes), "+r"(piece)); /* for a known size gcc would inline rep movsq: slower */
    for (; size_bytes > piece; size_bytes -= piece) {
        memcpy(to, from, piece);
        to = (char *)to + piece;
        from = (const char *)from + piece;
    }
    memcpy(to, from, size_bytes);
#endif
}

/* Copy two words by two loads and one store. If they were stored one by one, a load of both would wait until
 * both stores have reached the cache. x86-64 does not split the store inside a word that is aligned. */
REMO__MAPPED_RACY void remo__mapped_two_words(volatile remo__word64 *to, const volatile remo__word64 *from) {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    __asm__ volatile("movq %1, %%xmm0\n\tmovhps %2, %%xmm0\n\tmovups %%xmm0, %0"
                     : "=m"(*(volatile char(*)[16])to)
                     : "m"(from[0]), "m"(from[1])
                     : "xmm0");
#else
    uint64_t a = from[0], b = from[1];
    to[0] = a;
    to[1] = b;
#endif
}

/* Copy word by word, two at a time. Both sides are volatile, so the compiler splits or repeats no access. */
REMO__MAPPED_RACY void remo__mapped_words(void *to, const void *from, size_t size_bytes) {
    volatile remo__word64 *to_words = to;
    const volatile remo__word64 *from_words = from;
    size_t words = size_bytes / 8, i = 0;
    for (; i + 2 <= words; i += 2)
        remo__mapped_two_words(to_words + i, from_words + i);
    if (i < words)
        to_words[i] = from_words[i];
    char *to_rest = (char *)to + words * 8;
    const char *from_rest = (const char *)from + words * 8;
    if (size_bytes & 4) {
        *(volatile remo__word32 *)to_rest = *(const volatile remo__word32 *)from_rest;
        to_rest += 4, from_rest += 4;
    }
    if (size_bytes & 2) {
        *(volatile remo__word16 *)to_rest = *(const volatile remo__word16 *)from_rest;
        to_rest += 2, from_rest += 2;
    }
    if (size_bytes & 1)
        *(volatile char *)to_rest = *(const volatile char *)from_rest;
}

/* Copy 8 to 32 bytes, by words that may overlap. */
REMO__MAPPED_RACY void remo__mapped_small(void *to, const void *from, size_t size_bytes) {
    const char *end = (const char *)from + size_bytes;
    char *to_end = (char *)to + size_bytes;
    const volatile remo__word64 *words = from;
    volatile remo__word64 *to_words = to;
    uint64_t a = words[0], d = *(const volatile remo__word64 *)(end - 8);
    if (size_bytes > 16) {
        uint64_t b = words[1], c = *(const volatile remo__word64 *)(end - 16);
        to_words[1] = b;
        *(volatile remo__word64 *)(to_end - 16) = c;
    }
    to_words[0] = a;
    *(volatile remo__word64 *)(to_end - 8) = d;
}

/* Copy any size except 8. `shared` is `to` or `from`, whichever other CPUs may access concurrently. */
REMO__MAPPED_RACY void remo__mapped_copy(void *to, const void *from, const void *shared, size_t size_bytes) {
    if (size_bytes == 4)
        *(volatile remo__word32 *)to = *(const volatile remo__word32 *)from;
    else if (size_bytes <= REMO__MAPPED_WORDS_BYTES && ((uintptr_t)shared & 7) == 0)
        remo__mapped_words(to, from, size_bytes);
    else if (size_bytes - 8 <= 32 - 8)
        remo__mapped_small(to, from, size_bytes);
    else if (size_bytes == 2)
        *(volatile remo__word16 *)to = *(const volatile remo__word16 *)from;
    else if (size_bytes > 0)
        remo__mapped_bulk(to, from, size_bytes);
}

REMO__MAPPED_INLINE uint64_t remo__mapped_load(const void *from) {
#if defined(__SANITIZE_THREAD__)
    if (((uintptr_t)from & 7) == 0)
        return __atomic_load_n((const uint64_t *)from, __ATOMIC_ACQUIRE);
#endif
    return *(const volatile remo__word64 *)from;
}

REMO__MAPPED_INLINE void remo__mapped_store(void *to, uint64_t value) {
#if defined(__SANITIZE_THREAD__)
    if (((uintptr_t)to & 7) == 0) {
        __atomic_store_n((uint64_t *)to, value, __ATOMIC_RELEASE);
        return;
    }
#endif
    *(volatile remo__word64 *)to = value;
}

/* Get the line at `place` for writing, without waiting for it: a hint. `place` need not be mapped. For x86-64
 * compilers emit this instruction for __builtin_prefetch only with an option. */
REMO__MAPPED_INLINE void remo__mapped_prefetch_write(const char *place) {
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*place));
#else
    __builtin_prefetch(place, 1);
#endif
}

/* Get the line at `place` for reading, without waiting for it: a hint. `place` need not be mapped. GCC treats
 * a function that only prefetches as one without effect, and removes its calls; the statement prevents
 * this. */
REMO__MAPPED_INLINE void remo__mapped_prefetch(const char *place) {
    __builtin_prefetch(place);
    __asm__ volatile("");
}

/* Read from a peer's memory. The buffers must not overlap. */
REMO__MAPPED_INLINE void remo__mapped_copy_from(void *to, const void *from, size_t size_bytes) {
#ifdef REMO_SIM
    remo__copy_from(to, from, size_bytes);
#else
    if (size_bytes == 8)
        *(remo__word64 *)to = remo__mapped_load(from);
    else
        remo__mapped_copy(to, from, from, size_bytes);
#endif
    remo__mapped_acquire();
}

/* Write to a peer's memory. The buffers must not overlap. */
REMO__MAPPED_INLINE void remo__mapped_copy_to(void *to, const void *from, size_t size_bytes) {
    remo__mapped_release();
#ifdef REMO_SIM
    remo__copy_to(to, from, size_bytes);
#else
    if (size_bytes == 8)
        remo__mapped_store(to, *(const remo__word64 *)from);
    else
        remo__mapped_copy(to, from, to, size_bytes);
#endif
}

/* Read and write as above, without a call: at most REMO__MAPPED_WORDS_BYTES at a multiple of 8 in the peer's
 * memory. */
REMO__MAPPED_INLINE void remo__mapped_words_from(void *to, const void *from, size_t size_bytes) {
#ifdef REMO_SIM
    remo__copy_from(to, from, size_bytes);
#else
    remo__mapped_words(to, from, size_bytes);
#endif
    remo__mapped_acquire();
}

REMO__MAPPED_INLINE void remo__mapped_words_to(void *to, const void *from, size_t size_bytes) {
    remo__mapped_release();
#ifdef REMO_SIM
    remo__copy_to(to, from, size_bytes);
#else
    remo__mapped_words(to, from, size_bytes);
#endif
}

/* Atomics on an aligned word of a peer's memory. They are CPU atomics, so atomic with every node's. They are
 * not reordered with earlier accesses, nor with later ones that are sequentially consistent. */
REMO__MAPPED_INLINE uint64_t remo__mapped_fetch_add(void *word, uint64_t addend) {
#ifdef REMO_SIM
    remo__sim_atomic(word);
#endif
    return atomic_fetch_add((_Atomic uint64_t *)word, addend);
}

REMO__MAPPED_INLINE uint64_t remo__mapped_fetch_or(void *word, uint64_t bits) {
#ifdef REMO_SIM
    remo__sim_atomic(word);
#endif
    return atomic_fetch_or((_Atomic uint64_t *)word, bits);
}

REMO__MAPPED_INLINE uint64_t remo__mapped_fetch_and(void *word, uint64_t bits) {
#ifdef REMO_SIM
    remo__sim_atomic(word);
#endif
    return atomic_fetch_and((_Atomic uint64_t *)word, bits);
}

/* Store `desired` if the word is `expected`; return the old value. */
REMO__MAPPED_INLINE uint64_t remo__mapped_compare_swap(void *word, uint64_t expected, uint64_t desired) {
#ifdef REMO_SIM
    remo__sim_atomic(word);
#endif
    atomic_compare_exchange_strong((_Atomic uint64_t *)word, &expected, desired);
    return expected;
}

/* Full fence, of which an atomic of this thread is a part: on x86-64 the atomic is one itself. */
REMO__MAPPED_INLINE void remo__mapped_fence_after_atomic(void) {
#if defined(REMO_SIM) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
    remo__mapped_fence();
#endif
}

/* Wake the peer's sleepers, after an atomic or a fence of this thread. An atomic precedes only loads that are
 * sequentially consistent. Valid only while the peer's base is not NULL. */
static inline void remo__mapped_wake(struct remo__fabric_peer *peer) {
    struct remo__doorbell *bell = atomic_load_explicit(&peer->doorbell, memory_order_acquire);
#ifdef REMO_SIM
    remo__sim_turn("read the number of sleepers");
#endif
    if (remo__unlikely(atomic_load_explicit(&bell->sleepers, memory_order_seq_cst) != 0))
        remo__doorbell_notify(bell);
}

/* Wake the peer's sleepers, after stores of this thread. Returns whether it was a full fence. Valid as
 * above. */
static inline bool remo__mapped_notify(struct remo__fabric_peer *peer) {
    bool sleepers_fence = atomic_load_explicit(&peer->sleepers_fence, memory_order_relaxed);
    /* pairs with the sleeper's fence: it counts itself before its last check */
    if (remo__likely(sleepers_fence))
        remo__threads_fence_hot();
    else
        remo__mapped_fence();
    remo__mapped_wake(peer);
    return !sleepers_fence;
}

#endif
