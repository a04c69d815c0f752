// A program with everything that runs at an end, which ends in the way its argument says; each has its own size.
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

static char *take(size_t n) {
    char *p = static_cast<char *>(malloc(n));
    return p ? static_cast<char *>(memset(p, 1, n)) : nullptr;
}

static void touch(size_t n) { free(take(n)); }

struct Object {
    size_t n;
    ~Object() { touch(n); }
};

static Object object{3000000};
static thread_local Object of_thread{0};
static char *volatile kept, *volatile left;

__attribute__((destructor)) static void last() { left = take(500000); }

static void gives_back(int, void *) { free(kept); }
static void handler() { touch(2000000); }
static void quick_handler() { touch(6000000); }

static void *later(void *) {
    usleep(20000);
    return nullptr;
}

static void *ends(void *) { exit(0); }

int main(int, char **args) {
    const std::string way = args[1];
    of_thread.n = 7000000;
    atexit(handler);
    at_quick_exit(quick_handler);
    kept = take(1000000);
    on_exit(gives_back, nullptr);
    pthread_t thread;
    if (way == "exit") exit(0);
    if (way == "quick_exit") quick_exit(0);
    if (way == "throw") throw std::runtime_error("out of main");
    if (way == "thread" && pthread_create(&thread, nullptr, ends, nullptr) == 0) pause();
    if (way == "pthread_exit" && pthread_create(&thread, nullptr, later, nullptr) == 0) pthread_exit(nullptr);
    if (way == "fork" && fork() != 0) {
        int status = 0;
        wait(&status);
        _exit(WEXITSTATUS(status) == 5 ? 0 : 1);
    }
    return way == "fork" ? 5 : 0;
}
