/* Keeps 1,000 blocks of 1,000 bytes, waits for three tenths of a second, keeps 200,000 of 100 and kills itself. */
#include <signal.h>
#include <stdlib.h>
#include <time.h>

static void keep(int times, size_t size)
{
	static void *last;
	for (int i = 0; i < times; i++) {
		void **block = malloc(size);
		block[0] = last;
		last = block;
	}
}

int main(void)
{
	keep(1000, 1000);
	struct timespec pause = { 0, 300000000 };
	nanosleep(&pause, 0);
	keep(200000, 100);
	raise(SIGKILL);
	return 0;
}
