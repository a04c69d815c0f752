/* A CUDA driver of our own, for tests only: memory in the host's RAM, streams on a clock that only waiting moves.

   Every operation of a stream begins when the one before it has ended and takes its latency and its bytes by the bandwidth of its kind, so what
   a program asked for has one length in nanoseconds, whatever the machine does meanwhile. The clock moves when the host waits (a
   synchronous copy, a synchronisation, fake_sleep, fake_follow), never by itself and never by a question. Result codes are the driver's. */
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef int R;
typedef uint64_t Ptr;
typedef uint32_t Ptr32;
typedef struct stream *Stream;
typedef struct event *Event;
typedef struct context *Context;
typedef struct graph *Graph;
typedef struct exec *Exec;
typedef struct pool *Pool;
typedef struct handle *Handle;
typedef struct array *Array;
typedef struct { int type, id; } Location;

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600,
       CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_UNMATCHED = 903, CAPTURE_IMPLICIT = 906, CAPTURED_EVENT = 907 };

#define DEVICES 2
/* Bytes a microsecond, and a latency that every operation has. */
enum { H2D_PINNED = 25000, H2D_PAGEABLE = 6000, D2H_PINNED = 20000, D2H_PAGEABLE = 5000, D2D = 1000000, P2P = 40000, H2H = 10000, SET = 1500000, LATENCY = 2000 };

#define API __attribute__((visibility("default")))

/* An operation of a stream, for whoever watches (fake_cupti.c). */
struct work {
    enum { KERNEL_RUNS, COPY_RUNS, SET_RUNS } what;
    int64_t begins, ends, kernel;
    uint64_t bytes, node;
    int rate, device, stream;
    uint32_t correlation;
};
/* Told of each call that starts work, from inside it, and of the work. */
struct tap {
    void (*call)(const char *symbol, uint32_t correlation);
    void (*work)(const struct work *);
};
API int fake_tap(const struct tap *);

/* For the programs: makes the n-th next call of this name (without suffix) fail with the code. */
API int fake_fail(const char *name, int code, int skip);
API int fake_slow(int us);
API int fake_sleep(int64_t ns);
/* Past every hook: a capture begins, and somebody takes a device's primary context (as the runtime does by a table of the driver's). */
API R fake_begin_capture(Stream s, int mode);
API R fake_hold_primary(int device);
API int64_t fake_now(void);
API int64_t fake_follow(int begin);
