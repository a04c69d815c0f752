# A server under load: its own allocator (jemalloc, in the executable or as a library), threads that run from its start on, and an orderly end.
redis-server --port 0 --unixsocket "$PWD/socket" --save '' --appendonly no --logfile log --dir "$PWD" &
server=$!
ask() { redis-cli -s socket "$@"; }
for _ in $(seq 500); do kill -0 "$server" || exit 9; [ -S socket ] && [ "$(ask ping 2>/dev/null)" = PONG ] && break; sleep .01; done
ask eval "for i = 1, 20000 do redis.call('set', 'key' .. i, string.rep('x', i % 300)) end return redis.call('dbsize')" 0
ask eval "for i = 1, 20000, 2 do redis.call('del', 'key' .. i) end return redis.call('dbsize')" 0
seq 3000 | sed 's/.*/rpush list &/' | ask >/dev/null
ask llen list
ask shutdown nosave
wait "$server"
echo "server ended with $?"
