# A database shell: many small blocks, a cache, an index, a file with a journal.
sqlite3 bank.db <<'SQL'
PRAGMA journal_mode = DELETE;
CREATE TABLE t (id INTEGER PRIMARY KEY, word TEXT, n INTEGER);
WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 20000)
INSERT INTO t SELECT i, printf('word %d', i * 7919 % 20011), i % 97 FROM c;
CREATE INDEX by_word ON t (word);
SELECT n, count(*), min(word), max(word) FROM t GROUP BY n ORDER BY n LIMIT 3;
DELETE FROM t WHERE n < 50;
VACUUM;
SELECT count(*), sum(length(word)) FROM t;
PRAGMA integrity_check;
SQL
echo 'SELECT nothing FROM nowhere;' | sqlite3 bank.db 2>/dev/null
echo "ended with $?"
