/* The driver of tests/fakecuda as programs know it: the API's types and codes, the rates of its clock (src/clock.rs has them too), and what it offers besides. */
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

#define DEVICES 3
/* Bytes a microsecond, and a latency that every operation has. */
enum { H2D_PINNED = 25000, H2D_PAGEABLE = 6000, D2H_PINNED = 20000, D2H_PAGEABLE = 5000, D2D = 1000000, P2P = 40000, H2H = 10000, SET = 1500000, LATENCY = 2000 };

/* Makes the n-th next call of this name (without suffix) fail with the code. */
int fake_fail(const char *name, int code, int skip);
/* How often somebody has entered a context that was gone. */
int fake_entered_dead(void);
/* Questions after events and streams take so long. */
int fake_slow(int us);
/* The clock goes on: by so much, or to where the machine's is. */
int fake_sleep(int64_t ns);
int64_t fake_follow(int begin);
int64_t fake_now(void);
/* Past every hook: a capture begins, and somebody takes a device's primary context (as the runtime does by a table of the driver's). */
R fake_begin_capture(Stream s, int mode);
R fake_hold_primary(int device);
