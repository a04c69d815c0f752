// A C++ library of the tests of native functions as phases.
#include <cstddef>
#include <string>
#include <vector>
namespace shapes {
struct failure { int depth; std::string why; };
class shape {
public:
    explicit shape(int n);
    virtual ~shape();
    virtual double area(double scale) const;
    int size() const;
private:
    int n_;
};
// Throws from the bottom of a recursion that goes through the linker.
int falls(int depth);
int stumbles(int depth);
// Catches what the other two throw.
int catches(int depth);
template <class T> std::size_t fill(std::vector<T> &to, std::size_t n);
extern template std::size_t fill<long>(std::vector<long> &, std::size_t);
} // namespace shapes
