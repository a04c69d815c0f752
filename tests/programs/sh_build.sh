# A build as builds are: probes that succeed and fail, a parallel make, an archive, a link, the result run.
echo 'int main(void) { return 0; }' >good.c
echo 'int main(void) { return missing; }' >bad.c
cc -o good good.c 2>/dev/null && ./good && echo 'good builds'
cc -o bad bad.c 2>/dev/null || echo 'bad does not'
for i in $(seq 0 39); do echo "int part$i(void) { return $i * 3; }" >part$i.c; done
{ echo '#include <stdio.h>'; for i in $(seq 0 39); do echo "int part$i(void);"; done
  echo 'int main(void) { int s = 0;'; for i in $(seq 0 39); do echo "s += part$i();"; done; echo 'printf("sum %d\n", s); return 0; }'; } >whole.c
cat >Makefile <<'MAKE'
PARTS = $(patsubst %.c,%.o,$(wildcard part*.c))
whole: whole.o libparts.a
	@cc -o $@ whole.o libparts.a
libparts.a: $(PARTS)
	@ar rcs $@ $^
%.o: %.c
	@cc -c -o $@ $<
MAKE
make -s -j3 && ./whole
