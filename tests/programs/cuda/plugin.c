/* A library that wraps a function of the C library by RTLD_NEXT, as other preloads do. */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <stdlib.h>
void *plugin_next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}
void *plugin_next_by_version(const char *name, const char *version)
{
    return dlvsym(RTLD_NEXT, name, version);
}
char *plugin_getenv(const char *name)
{
    char *(*real)(const char *) = (char *(*)(const char *))dlsym(RTLD_NEXT, "getenv");
    return real ? real(name) : 0;
}
void *plugin_default(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}
