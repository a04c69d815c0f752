//! Promises about Python programs: interpreter, modules in C, children by every start method.
mod support;
use support::Need;

promises! {
    ctypes_calls_are_exact: "py_ctypes.py";
    the_mmap_module_is_seen: "py_mmap.py";
    multiprocessing_works_by_every_start_method: "py_multiprocessing.py".limit(120);
    subprocesses_see_no_more_and_no_less: "py_subprocess.py";
    faulthandler_timers_and_exit_codes_are_as_ever: "py_faults.py".exits(19);
    forks_under_native_threads_never_hang: "py_fork_threads.py";
    a_daemons_log_is_clean: "py_daemon.py";
    a_fork_is_of_one_thread_to_those_who_count: "py_fork_counted.py";
    numpy_computes_the_same: "py_arrays.py".need(Need::Module("numpy"));
}
