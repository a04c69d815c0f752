/* Phases of a program for memshim. Nothing to link: without memshim the calls are one test of a null pointer.
 *
 *     memshim_phase("assemble") { ... }          a block; not left by break, return or goto
 *     memshim_begin("solve"); ...; memshim_end();
 *     memshim_instant("converged");
 */
#ifndef MEMSHIM_H
#define MEMSHIM_H

#ifdef __cplusplus
extern "C" {
#endif

void memshim_phase_begin(const char *name) __attribute__((weak));
void memshim_phase_end(void) __attribute__((weak));
void memshim_mark(const char *name) __attribute__((weak));

/* A phase of the calling thread begins. Phases nest. */
static inline void memshim_begin(const char *name) {
    if (memshim_phase_begin) memshim_phase_begin(name);
}

/* The calling thread's innermost phase ends. */
static inline void memshim_end(void) {
    if (memshim_phase_end) memshim_phase_end();
}

/* Something happens now. */
static inline void memshim_instant(const char *name) {
    if (memshim_mark) memshim_mark(name);
}

#define memshim_phase(name) \
    for (int memshim_once_ = (memshim_begin(name), 1); memshim_once_; memshim_once_ = (memshim_end(), 0))

#ifdef __cplusplus
}

namespace memshim {
/* A phase that lasts as long as the object. */
class phase {
public:
    explicit phase(const char *name) { memshim_begin(name); }
    ~phase() { memshim_end(); }
    phase(const phase &) = delete;
    phase &operator=(const phase &) = delete;
};
} /* namespace memshim */
#endif

#endif
