/* Its destructor runs after everything of the program, perhaps after the shim's own. */
#include "facts.h"
static int used;
void library_is_used(int yes) { used = yes; }
__attribute__((destructor)) static void very_late(void)
{
    if (!used) return;
    blocks(11, 9973);
    opaque(malloc(24007)); opaque(malloc(24007));
}
