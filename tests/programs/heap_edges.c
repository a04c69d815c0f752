/* One thread, the corners of the malloc family: sizes nobody should ask for, failures, alignments, chains. */
#include "facts.h"

static int zero_and_overflow(char **args)
{
    (void)args;
    const size_t wide = (size_t)1 << 36, most = PTRDIFF_MAX;
    void *one = opaque(malloc(0)), *two = opaque(malloc(0)), *none = opaque(calloc(0, 5));
    EXPECT(one && two && none && one != two);
    free(one); free(two); free(none);
    errno = 0; EXPECT(!opaque(calloc(wide, wide)) && errno == ENOMEM);
    errno = 0; EXPECT(!opaque(malloc(most + 1)) && errno == ENOMEM);
    errno = 0; EXPECT(!opaque(malloc(SIZE_MAX)) && errno == ENOMEM);
    errno = 0; EXPECT(!opaque(reallocarray(0, wide, wide)) && errno == ENOMEM);
    free(opaque(0));

    char *kept = opaque(malloc(9973));
    memset(kept, 6, 9973);
    errno = 0; EXPECT(!opaque(realloc(kept, most + 1)) && errno == ENOMEM);
    errno = 0; EXPECT(!opaque(reallocarray(kept, wide, wide)) && errno == ENOMEM);
    EXPECT(kept[0] == 6 && kept[9972] == 6);
    free(kept);
    EXPECT(!opaque(realloc(opaque(malloc(9973)), 0)));
    free(opaque(realloc(0, 9973)));
    free(opaque(realloc(0, 0)));
    line("TRUTH size=9973 allocs=3 frees=3");
    line("TRUTH size=0 allocs=4 frees=4");
    return 0;
}

static int alignments(char **args)
{
    (void)args;
    void *untouched = (void *)0x55;
    errno = 77;
    EXPECT(posix_memalign(&untouched, 0, 9973) == EINVAL && posix_memalign(&untouched, 12, 9973) == EINVAL);
    EXPECT(posix_memalign(&untouched, 2, 9973) == EINVAL && untouched == (void *)0x55 && errno == 77);
    EXPECT(posix_memalign(&untouched, 4096, (size_t)PTRDIFF_MAX + 9) == ENOMEM);
    int count = 0;
    for (size_t align = 32; align <= 512 << 10; align *= 2) {
        void *three[3];
        EXPECT(!posix_memalign(&three[0], align, 9973));
        three[1] = memalign(align, 9973);
        three[2] = aligned_alloc(align, 9973);
        for (int i = 0; i < 3; i++, count++) {
            size_t usable = malloc_usable_size(three[i]);
            EXPECT(three[i] && (uintptr_t)three[i] % align == 0 && usable >= 9973);
            memset(three[i], i, usable);
            if (i == 2) three[i] = realloc(three[i], 19991);
            free(three[i]);
        }
    }
    for (int i = 0; i < 7; i++, count++) { void *page = opaque(valloc(9973)); EXPECT((uintptr_t)page % 4096 == 0); free(page); }
    void *whole = opaque(pvalloc(1)), *empty = opaque(pvalloc(0));
    EXPECT(whole && (uintptr_t)whole % 4096 == 0 && malloc_usable_size(whole) >= 4096 && (uintptr_t)empty % 4096 == 0);
    free(whole); free(empty);
    EXPECT(malloc_usable_size(0) == 0);
    line("TRUTH size=9973 allocs=%d frees=%d", count, count);
    line("TRUTH size=19991 allocs=15 frees=15");
    return 0;
}

/* Blocks grow three times; the last ones are shrunk, some stay: counts, peak and leak follow from arithmetic. */
static int realloc_chain(char **args)
{
    (void)args;
    enum { N = 80 };
    static char *all[N];
    for (int i = 0; i < N; i++) EXPECT(all[i] = malloc(12007));
    for (int i = 0; i < N; i++) { EXPECT(all[i] = realloc(all[i], 26003)); all[i][26002] = 1; }
    for (int i = 0; i < N; i++) { EXPECT(all[i] = reallocarray(all[i], 1, 50021)); all[i][50020] = 1; }
    for (int i = 0; i < N; i++) EXPECT(all[i] = realloc(all[i], 7013));
    for (int i = 0; i < N - 11; i++) free(all[i]);
    line("TRUTH size=12007 allocs=80 frees=80 peak_live=80 peak_live_bytes=960560");
    line("TRUTH size=26003 allocs=80 frees=80");
    line("TRUTH size=50021 allocs=80 frees=80");
    line("TRUTH size=7013 allocs=80 frees=69 leaked=11 leaked_bytes=77143");
    line("TRUTH sizes=12007,26003,50021,7013 peak_live_bytes=4001680");
    return 0;
}

/* Blocks above the size that fast mode records by itself, so the promise is exact in both modes. */
static int big_blocks(char **args)
{
    (void)args;
    char *held[16];
    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < 16; i++) { EXPECT(held[i] = calloc(1, 300007)); held[i][round] = 1; }
        for (int i = 0; i < 16; i++) EXPECT(held[i] = realloc(held[i], 900001));
        for (int i = round == 7 ? 3 : 0; i < 16; i++) free(held[i]);
    }
    line("TRUTH size=300007 allocs=128 frees=128 peak_live=16");
    line("TRUTH size=900001 allocs=128 frees=125 leaked=3 leaked_bytes=2700003");
    line("TRUTH sizes=300007,900001 peak_live_bytes=14400016");
    return 0;
}

/* Younger and older ways to free: in the C library of some systems, and in a shim that knows them. */
static int other_frees(char **args)
{
    (void)args;
    void (*sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
    void (*aligned)(void *, size_t, size_t) = (void (*)(void *, size_t, size_t))dlsym(RTLD_DEFAULT, "free_aligned_sized");
    void (*old)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "cfree");
    for (int i = 0; i < 60; i++) {
        void *a = opaque(malloc(9973)), *b = opaque(aligned_alloc(64, 9984 + 64)), *c = opaque(calloc(1, 9973));
        if (sized) sized(a, 9973); else free(a);
        if (aligned) aligned(b, 64, 9984 + 64); else free(b);
        if (old) old(c); else free(c);
    }
    if (sized) sized(0, 10);
    line("TRUTH size=9973 allocs=120 frees=120");
    line("TRUTH size=10048 allocs=60 frees=60");
    return 0;
}

static long changed;
#define KEEPS(call) do { errno = 5150; call; if (errno != 5150) __atomic_fetch_add(&changed, 1, __ATOMIC_RELAXED); } while (0)
static void *errno_work(void *arg)
{
    for (int i = 0; i < 3000; i++) {
        size_t size = i % 64 ? 250 : 5 << 20;
        void *a, *b;
        KEEPS(a = opaque(malloc(size)));
        KEEPS(a = opaque(realloc(a, size * 2)));
        KEEPS(free(a));
        KEEPS(b = opaque(calloc(5, 50)));
        KEEPS(free(b));
        KEEPS(free(opaque(0)));
        KEEPS(a = mmap(0, 12288, RW, ANON, -1, 0));
        KEEPS(mprotect(a, 4096, PROT_READ));
        KEEPS(madvise(a, 4096, MADV_DONTNEED));
        KEEPS(a = mremap(a, 12288, 8192, 0));
        KEEPS(munmap(a, 8192));
        KEEPS(EXPECT(!posix_memalign(&b, 128, 300)));
        KEEPS(malloc_usable_size(b));
        KEEPS(free(b));
    }
    return arg;
}
static int errno_at_constructor = -1;
__attribute__((constructor)) static void first(void) { errno_at_constructor = errno; }
static int errno_kept(char **args)
{
    (void)args;
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) EXPECT(!pthread_create(&threads[i], 0, errno_work, 0));
    for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
    pid_t child = fork();
    if (!child) { errno_work(0); _exit(changed != 0); }
    int rc = ended(child);
    line("errno at constructor %d, changed %ld, in child %d", errno_at_constructor, changed, rc);
    return 0;
}

MODES({ "zero", zero_and_overflow }, { "aligned", alignments }, { "chain", realloc_chain }, { "big", big_blocks }, { "other-frees", other_frees }, { "errno", errno_kept })
