"""A program that debuggers, profilers, tracers and test runners look at."""


def solve(n):
    x = [0] * n
    return len(x)


def numbers(n):
    for i in range(n):
        yield solve(i)


def fails(n):
    assert solve(n) > 5, "too small"


def test_solve():
    assert solve(3) == 3


def test_numbers():
    assert list(numbers(3)) == [0, 1, 2]


def test_fails():
    fails(2)


def main():
    test_solve()
    test_numbers()
    try:
        test_fails()
    except AssertionError:
        pass
    print("done")


if __name__ == "__main__":
    main()
