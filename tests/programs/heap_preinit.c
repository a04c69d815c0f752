/* Blocks made in .preinit_array, before the constructor of any preloaded library, live on into main. */
#include "facts.h"
enum { N = 36 };
static unsigned char *born[N];
static void before_everything(int argc, char **argv, char **env)
{
    (void)argc; (void)argv; (void)env;
    for (int i = 0; i < N; i++) { born[i] = malloc(11003); memset(born[i], i + 1, 11003); }
    free(opaque(malloc(11003)));
}
__attribute__((section(".preinit_array"), used)) static void (*entry)(int, char **, char **) = before_everything;
__attribute__((constructor(102))) static void early(void)
{
    for (int i = 0; i < N / 3; i++) born[i] = realloc(born[i], 23003);
}
int main(void)
{
    for (int i = N / 3; i < N; i++) born[i] = realloc(born[i], 23003);
    for (int i = 0; i < N; i++) { EXPECT(born[i][0] == i + 1 && born[i][11002] == i + 1); free(born[i]); }
    line("TRUTH size=11003 allocs=37 frees=37 peak_live=37");
    line("TRUTH size=23003 allocs=36 frees=36");
    return 0;
}
