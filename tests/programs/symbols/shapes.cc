#include "shapes.h"
namespace shapes {
shape::shape(int n) : n_(n) {}
shape::~shape() {}
double shape::area(double scale) const { return n_ * scale; }
int shape::size() const { return n_; }
int falls(int depth) {
    std::string held(100, 'x');
    if (depth == 0) throw failure{depth, held};
    return stumbles(depth - 1) + (int)held.size();
}
int stumbles(int depth) {
    std::vector<char> held(1000);
    return falls(depth) + (int)held.size();
}
int catches(int depth) {
    try {
        return falls(depth);
    } catch (const failure &f) {
        return (int)f.why.size();
    }
}
template <class T> std::size_t fill(std::vector<T> &to, std::size_t n) {
    to.resize(n);
    return to.size();
}
template std::size_t fill<long>(std::vector<long> &, std::size_t);
} // namespace shapes
