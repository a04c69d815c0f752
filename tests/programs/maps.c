/* The address space by its calls. Each mode is one region whose size after every step is known. */
#include "facts.h"
#include <sys/ipc.h>
#include <sys/shm.h>

static int holes(char **args)
{
    (void)args;
    char *p = map_anon(96 * 4096);
    memset(p, 1, 96 * 4096);
    for (int i = 0; i < 96; i += 3) EXPECT(!munmap(p + i * 4096, 4096));
    errno = 0; EXPECT(munmap(p + 7, 4096) == -1 && errno == EINVAL);
    EXPECT(!munmap(p, 96 * 4096));
    char *q = mmap(0, 5 * 20480, PROT_NONE, ANON, -1, 0);
    EXPECT(q != MAP_FAILED && !munmap(q, 5 * 20480));
    for (int i = 0; i < 5; i++) EXPECT(mmap(q + i * 20480, 20480, RW, ANON | MAP_FIXED, -1, 0) == q + i * 20480);
    EXPECT(!munmap(q, 5 * 20480 - 1));
    line("TRUTH hole_region_anon=393216,262144,0");
    line("TRUTH joined_region_anon=102400,0");
    return 0;
}

static int remap(char **args)
{
    (void)args;
    char *p = map_anon(49152);
    memset(p, 3, 49152);
    char *grown = mremap(p, 49152, 147456, MREMAP_MAYMOVE);
    EXPECT(grown != MAP_FAILED);
    grown[147455] = 4;
    EXPECT(mremap(grown, 147456, 24576, 0) == grown);
    char *room = mmap(0, 131072, PROT_NONE, ANON, -1, 0);
    char *moved = mremap(grown, 24576, 24576, MREMAP_MAYMOVE | MREMAP_FIXED, room + 16384);
    EXPECT(moved == room + 16384 && moved[0] == 3 && moved[24575] == 3);
    errno = 0; EXPECT(mremap(moved, 24576, (size_t)1 << 46, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM);
    errno = 0; EXPECT(mremap(moved + 1, 4096, 8192, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
    char *shared = mmap(0, 12288, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared[1] = 9;
    char *twin = mremap(shared, 0, 12288, MREMAP_MAYMOVE);
    EXPECT(twin != MAP_FAILED && twin != shared && twin[1] == 9);
    EXPECT(!munmap(twin, 12288) && !munmap(shared, 12288) && !munmap(room, 131072));
    line("TRUTH mremap_anon=49152,147456,24576,24576,0");
    return 0;
}

static int fixed_over(char **args)
{
    (void)args;
    int file = open("over.bin", O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    EXPECT(file >= 0 && !ftruncate(file, 32768));
    char *p = map_anon(163840);
    EXPECT(mmap(p + 16384, 32768, RW, MAP_PRIVATE | MAP_FIXED, file, 0) == p + 16384);
    EXPECT(mmap(p + 65536, 65536, RW, ANON | MAP_FIXED, -1, 0) == p + 65536);
    EXPECT(mmap(p + 16384, 32768, RW, ANON | MAP_FIXED, -1, 0) == p + 16384);
    memset(p, 1, 163840);
    errno = 0; EXPECT(mmap(p, 4096, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED && errno == EEXIST);
    EXPECT(!munmap(p, 163840));
    line("TRUTH fixed_region_anon=163840,131072,131072,163840,0");
    return 0;
}

static int given_back(char **args)
{
    (void)args;
    enum { LENGTH = 20 << 20 };
    char *p = map_anon(LENGTH), *q = map_anon(LENGTH);
    memset(p, 1, LENGTH);
    memset(q, 1, LENGTH);
    long full = status_value("VmRSS:");
    EXPECT(!madvise(p, LENGTH, MADV_DONTNEED));
    long left = status_value("VmRSS:");
    EXPECT(!madvise(q, LENGTH, MADV_FREE));
    EXPECT(p[4321] == 0);
    EXPECT(!munmap(p, LENGTH) && !munmap(q, LENGTH));
    line("TRUTH map=%d maps=2 unmaps=2", LENGTH);
    line("resident fell: %s", full - left > 18 << 10 ? "yes" : "no");
    return 0;
}

static void one_kind(size_t length, int flags, int file, const char *kind)
{
    char *p = mmap(0, length, RW, flags, file, 0);
    EXPECT(p != MAP_FAILED);
    p[length - 1] = 1;
    EXPECT(!munmap(p, length));
    line("TRUTH map=%zu maps=1 unmaps=1 kind=%s", length, kind);
}
static int kinds(char **args)
{
    (void)args;
    int file = open("kind.bin", O_CREAT | O_RDWR | O_CLOEXEC, 0644), zero = open("/dev/zero", O_RDWR | O_CLOEXEC), memory = memfd_create("kind", MFD_CLOEXEC);
    EXPECT(file >= 0 && zero >= 0 && memory >= 0 && !ftruncate(file, 1 << 20) && !ftruncate(memory, 1 << 20));
    one_kind(94208, ANON, -1, "anon_private");
    one_kind(98304, MAP_SHARED | MAP_ANONYMOUS, -1, "anon_shared");
    one_kind(102400, MAP_PRIVATE, file, "file_private");
    one_kind(106496, MAP_SHARED, file, "file_shared");
    one_kind(114688, MAP_SHARED, memory, "memfd_shared");
    one_kind(118784, MAP_PRIVATE, zero, "dev_zero_private");
    int id = shmget(IPC_PRIVATE, 122880, IPC_CREAT | 0600);
    EXPECT(id >= 0);
    char *segment = shmat(id, 0, 0);
    EXPECT(segment != (void *)-1);
    segment[122879] = 1;
    EXPECT(!shmdt(segment) && !shmctl(id, IPC_RMID, 0));
    errno = 0; EXPECT(shmdt(&id) == -1 && errno == EINVAL);
    return 0;
}

static int reserve(char **args)
{
    (void)args;
    const size_t huge = (size_t)96 << 30, used = 6 << 20;
    char *p = mmap(0, huge, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
    EXPECT(p != MAP_FAILED);
    char *middle = p + (huge >> 1);
    EXPECT(!mprotect(middle, used, RW));
    memset(middle, 1, 2 << 20);
    EXPECT(!munmap(p, huge));
    line("TRUTH map=%zu maps=1 unmaps=1 prot_none=1", huge);
    line("TRUTH anon_rw_peak=%zu anon_rw_end=0", used);
    return 0;
}

static int own_break(char **args)
{
    (void)args;
    mallopt(M_MMAP_THRESHOLD, 1);
    mallopt(M_TOP_PAD, 0);
    char *start = sbrk(0);
    EXPECT(sbrk(1 << 20) == start);
    memset(start, 1, 1 << 20);
    EXPECT(sbrk(1 << 19) == start + (1 << 20));
    EXPECT(sbrk(-(1 << 18)) == start + (3 << 19));
    EXPECT(!brk(start) && sbrk(0) == start);
    errno = 0; EXPECT(sbrk((intptr_t)1 << 46) == (void *)-1 && errno == ENOMEM);
    line("TRUTH brk_up=1572864 brk_down=1572864 brk_net=0");
    return 0;
}

/* Resident for 300 ms, and not before nor after. */
static int resident(char **args)
{
    (void)args;
    enum { LENGTH = 64 << 20 };
    rest_ms(150);
    char *p = map_anon(LENGTH);
    memset(p, 1, LENGTH);
    rest_ms(300);
    EXPECT(!munmap(p, LENGTH));
    rest_ms(150);
    line("TRUTH map=%d maps=1 unmaps=1", LENGTH);
    return 0;
}

MODES({ "resident", resident }, { "holes", holes }, { "remap", remap }, { "fixed-over", fixed_over }, { "given-back", given_back }, { "kinds", kinds },
      { "reserve", reserve }, { "break", own_break })
