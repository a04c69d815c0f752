/* Says in which library the program finds each function named on its command line. Usage: reach NAME... */
#include "facts.h"
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        Dl_info info = { 0 };
        void *at = dlsym(RTLD_DEFAULT, argv[i]);
        if (at) dladdr(at, &info);
        const char *file = info.dli_fname ? info.dli_fname : "nowhere", *slash = strrchr(file, '/');
        line("%s %s", argv[i], slash ? slash + 1 : file);
    }
    return 0;
}
