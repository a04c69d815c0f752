/* What the driver says of itself and of its devices. */

/* Which driver it stands for: it has the functions of that version and no newer ones (fake_lookup.h). */
#ifndef DRIVER_VERSION
#define DRIVER_VERSION 13050
#endif

API R cuDriverGetVersion(int *v)
{
    *v = DRIVER_VERSION;
    return OK;
}
API R cuDeviceGetCount(int *n)
{
    *n = DEVICES;
    return OK;
}
API R cuDeviceGet(int *d, int i)
{
    *d = i;
    return i < DEVICES ? OK : 101;
}
API R cuDeviceGetName(char *name, int len, int d)
{
    snprintf(name, len, "Fake GPU %d", d);
    return OK;
}
API R cuDeviceTotalMem_v2(size_t *bytes, int d)
{
    *bytes = total[d];
    return OK;
}
/* Compute capability 9.0, pools of memory; of the rest, that it is there. */
API R cuDeviceGetAttribute(int *v, int what, int d)
{
    enum { MAJOR = 75, MINOR = 76 };
    *v = what == MAJOR ? 9 : what == MINOR ? 0 : 1;
    return OK;
}
API R cuDeviceGetUuid_v2(char *id, int d)
{
    memset(id, 0, 16);
    id[15] = d + 1;
    return OK;
}
/* Where device 0 is on the bus, where FAKE_BUS says so; the others are nowhere. */
API R cuDeviceGetPCIBusId(char *text, int len, int d)
{
    const char *at = getenv("FAKE_BUS");
    if (!at || d)
        return INVALID_VALUE;
    snprintf(text, len, "%s", at);
    return OK;
}
