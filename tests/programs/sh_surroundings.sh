# No environment, limits of every sort, many processes at once, archives through pipes.
env -i /bin/sh -c 'echo bare'
(exec -c /bin/sh -c 'echo cleared')
(ulimit -v 450000; /bin/echo address space)
(ulimit -n 14; seq 3000 | sort -rn | tail -n 1)
(ulimit -f 12; seq 1 150000 | awk '{ s += $1 } END { print "size", s }')
(ulimit -c 0; nice -n 3 /bin/echo nice)
mkdir parts
seq 30 | xargs -P 3 -I{} sh -c 'echo {} >parts/{}'
find parts -type f -exec cat {} + | sort -n | tail -n 1
mkdir copy && tar -C parts -cf - . | gzip -1c | gunzip -c | tar -C copy -xf - && diff -r parts copy && echo same
