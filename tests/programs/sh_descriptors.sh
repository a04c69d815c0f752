# Pipelines, subshells, here documents, substitutions, jobs, traps, and descriptors on numbers of the script's choosing.
trap 'echo trapped' EXIT
printf '5\n1\n9\n' | sort -n | paste -sd' '
echo "sum $(seq 1 200 | awk '{ s += $1 } END { print s }')"
cat <<TEXT | tail -n 1
first
here $((6 * 7))
TEXT
echo "lines $(cat <(seq 4) <(seq 8) | wc -l)"
exec 4>four.txt 9>nine.txt 77>seventy.txt 255>high.txt
for fd in 4 9 77 255; do echo word >&$fd; done
for i in $(seq 80); do /bin/true; done
exec 4>&- 9>&- 77>&- 255>&-
echo "files $(cat four.txt nine.txt seventy.txt high.txt | wc -c)"
(exit 0) & one=$!
(exit 4) & two=$!
sleep 0.1 & three=$!
wait $one; a=$?; wait $two; b=$?; wait $three; c=$?
echo "jobs $a $b $c"
exit 23
