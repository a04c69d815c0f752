/* Allocates small blocks and large ones and is gone some milliseconds after its start. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void keep(size_t size)
{
	static void *last;
	void **block = malloc(size);
	block[0] = last;
	last = block;
}

int main(void)
{
	for (int i = 0; i < 100; i++)
		keep(1000);
	for (int i = 0; i < 100; i++)
		keep(100000);
	struct timespec pause = { 0, 20000000 };
	nanosleep(&pause, 0);
	raise(SIGKILL);
	return 0;
}
