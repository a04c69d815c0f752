/* Linked against another allocator (-DJEMALLOC, -DTCMALLOC, -DMIMALLOC): it stays the one in use. */
#include "facts.h"
#if defined JEMALLOC
int mallctl(const char *, void *, size_t *, void *, size_t);
static uint64_t handed_out(void)
{
    uint64_t bytes = 0;
    size_t length = sizeof bytes;
    EXPECT(!mallctl("thread.allocated", &bytes, &length, 0, 0));
    return bytes;
}
#elif defined TCMALLOC
/* Only says that it is there; what it handed out over time it does not tell. */
int MallocExtension_GetNumericProperty(const char *, size_t *);
static uint64_t handed_out(void)
{
    size_t bytes = 0;
    EXPECT(MallocExtension_GetNumericProperty("generic.current_allocated_bytes", &bytes));
    return bytes;
}
#else
_Bool mi_is_in_heap_region(const void *);
#endif
int main(void)
{
#if defined JEMALLOC
    uint64_t before = handed_out();
    blocks(1500, 10453);
    int used = handed_out() - before >= 1500ull * 10453;
#elif defined TCMALLOC
    uint64_t before = handed_out();
    char *held[100];
    for (int i = 0; i < 100; i++) { held[i] = opaque(malloc(10453)); held[i][0] = 1; }
    int used = handed_out() - before >= 100ull * 10453;
    for (int i = 0; i < 100; i++) free(held[i]);
    blocks(1400, 10453);
#else
    char *p = opaque(malloc(10453));
    int used = mi_is_in_heap_region(p);
    free(p);
    blocks(1499, 10453);
#endif
    void *q = opaque(calloc(3, 70));
    EXPECT(malloc_usable_size(q) >= 210);
    free(q);
    line("TRUTH size=10453 allocs=1500 frees=1500");
    line("linked allocator in use: %s", used ? "yes" : "no");
    return 0;
}
