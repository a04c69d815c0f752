// A client of NVTX as its headers make one: tables of pointers that begin at an initialiser, which looks for an injection library. Two of
// them in one program, as two libraries would be. With an argument: prints what the calls return.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

typedef void *domain;
struct event {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const void *message;
};
typedef void (*function)(void);
typedef int (*initialise)(const void *(*)(uint32_t));

struct client {
    function core[16], core2[16];
    function *core_at[16], *core2_at[16];
};
static struct client clients[2];
static int asked;

static int tables(uint32_t module, function ***table, unsigned *size) {
    struct client *c = &clients[asked];
    if (module != 1 && module != 5) return 0;
    for (int i = 0; i < 16; i++) {
        c->core_at[i] = &c->core[i];
        c->core2_at[i] = &c->core2[i];
    }
    *table = module == 1 ? c->core_at : c->core2_at;
    *size = 16;
    return 1;
}

static struct {
    size_t size;
    int (*tables)(uint32_t, function ***, unsigned *);
} callbacks = {sizeof callbacks, tables};

static const void *export(uint32_t id) {
    return id == 1 ? &callbacks : 0;
}

static int start(int which) {
    asked = which;
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY) : 0;
    initialise f = library ? (initialise)dlsym(library, "InitializeInjectionNvtx2") : 0;
    return f ? f(export) : 0;
}

#define CORE(c, i, type) ((type)clients[c].core[i])
#define CORE2(c, i, type) ((type)clients[c].core2[i])

static void *hold(size_t n) {
    return memset(malloc(n), 1, n);
}

int main(int n, char **arg) {
    int ready = start(0) && start(1);
    const char *seen = getenv("NVTX_INJECTION64_PATH"), *plain = getenv("PLAIN");
    extern char **environ;
    int set = 0;
    for (char **e = environ; *e; e++) set += !strncmp(*e, "NVTX_INJECTION64_PATH=", 22);
    fprintf(stderr, "ready %d, in the environment %d, plain %s\n", ready, set, plain ? plain : "(none)");
    if (!ready) return seen ? 1 : 0;

    struct event named = {3, sizeof named, 0, 0, 0, 0, 0, 0, 1, "plain event"};
    struct event wide = {3, sizeof wide, 0, 0, 0, 0, 0, 0, 2, L"breit ü"};
    int pushed = CORE(0, 9, int (*)(const char *))("outer");
    void *a = hold(1000000);
    CORE(1, 8, int (*)(struct event *))(&named); // pushed by the other client
    void *b = hold(200000);
    free(b);
    CORE(1, 11, int (*)(void))();
    CORE(0, 8, int (*)(struct event *))(&wide);
    CORE(0, 11, int (*)(void))();
    int popped = CORE(0, 11, int (*)(void))();
    CORE(0, 2, void (*)(const char *))("a mark");

    domain d = CORE2(0, 12, domain (*)(const char *))("solver");
    void *text = CORE2(0, 10, void *(*)(domain, const char *))(d, "registered");
    struct event registered = {3, sizeof registered, 0, 0, 0, 0, 0, 0, 3, text};
    CORE(0, 9, int (*)(const char *))("around");
    CORE2(0, 4, int (*)(domain, struct event *))(d, &registered);
    void *c = hold(3000000);
    CORE(0, 11, int (*)(void))(); // ends `around`, not the domain's
    free(c);
    CORE2(0, 5, int (*)(domain))(d);

    uint64_t one = CORE(0, 5, uint64_t (*)(const char *))("range one");
    uint64_t two = CORE2(0, 2, uint64_t (*)(domain, struct event *))(d, &named);
    void *e = hold(400000);
    CORE(0, 7, void (*)(uint64_t))(one);
    free(e);
    CORE2(0, 3, void (*)(domain, uint64_t))(d, two);
    if (n > 1) printf("push %d pop %d ranges %d\n", pushed, popped, one != two);
    free(a);
    return 0;
}
