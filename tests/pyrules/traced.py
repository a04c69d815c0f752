"""Everything that looks at frames prints what it sees: tracing, profiling, monitoring tools, tracebacks."""
import sys
import traceback


def solve(n):
    x = [0] * n
    y = "s"
    return len(x) if y else 0


def gen():
    a = 1
    yield a
    yield a + 1


def fails():
    q = 3
    raise ValueError(q)


def run():
    solve(3)
    list(gen())
    try:
        fails()
    except ValueError as e:
        return e.__traceback__.tb_next.tb_frame.f_locals


def seen(frame):
    return sorted(frame.f_locals.items()) if frame.f_code.co_name in ("solve", "gen", "fails") else None


def tracer(frame, event, arg):
    if frame.f_code.co_filename != __file__:
        return None
    print(event, frame.f_code.co_name, frame.f_lineno, seen(frame), arg if event == "return" else type(arg).__name__)
    return tracer


def profiler(frame, event, arg):
    if frame.f_code.co_filename == __file__:
        print(event, frame.f_code.co_name, seen(frame), getattr(arg, "__name__", None))


sys.settrace(tracer)
run()
sys.settrace(None)
sys.setprofile(profiler)
run()
sys.setprofile(None)
if sys.version_info >= (3, 12):
    mon = sys.monitoring
    events = mon.events
    for tool in (0, 1, 2, 5):

        def told(code, offset, value=None):
            if code.co_filename == __file__:
                print(tool, code.co_name, offset, seen(sys._getframe(1)), value)

        mon.use_tool_id(tool, "test")
        wanted = [events.PY_START, events.PY_RETURN, events.PY_YIELD, events.PY_UNWIND, events.RAISE]
        for event in wanted:
            mon.register_callback(tool, event, told)
        mon.set_events(tool, sum(wanted))
        run()
        mon.set_events(tool, 0)
        mon.free_tool_id(tool)
print(run())
try:
    fails()
except ValueError:
    print(traceback.format_exc())
print(sys.gettrace(), sys.getprofile())
