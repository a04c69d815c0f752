# A C++ compiler: a driver, the compiler proper with a large heap, assembler, linker, and what they made.
cat >whole.cc <<'CPP'
#include <map>
#include <string>
#include <cstdio>
template <int N> struct Part { static long sum(std::map<int, std::string> &m) { m[N] = std::to_string(N); return N + Part<N - 1>::sum(m); } };
template <> struct Part<0> { static long sum(std::map<int, std::string> &) { return 0; } };
int main() { std::map<int, std::string> m; long sum = Part<60>::sum(m); std::printf("sum %ld of %zu\n", sum, m.size()); }
CPP
g++ -O1 -g -o whole whole.cc && ./whole
echo 'int main() { return missing; }' >bad.cc
g++ -c bad.cc 2>/dev/null || echo "bad does not: $?"
