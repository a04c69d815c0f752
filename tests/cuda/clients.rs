//! Promises about programs that reach the driver by a binding of their language: cudarc in Rust, NVIDIA's own and Numba's in Python.

use super::*;
use cudarc::driver::sys::CUevent_flags::CU_EVENT_DEFAULT;
use cudarc::driver::{CudaContext, DriverError};

/// Set where this binary is to be the program and not the test.
const IS_PROGRAM: &str = "CUDARC_PROGRAM";

/// Says how long four copies of 1 MiB took by events of its own.
fn program() -> Result<(), DriverError> {
    let mib = MIB as usize;
    let context = CudaContext::new(0)?;
    let (first, second) = (context.new_stream()?, context.new_stream()?);
    let host: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
    let a = first.clone_htod(&host)?;
    assert_eq!(first.clone_dtoh(&a)?, host);
    let mut b = first.alloc_zeros::<u8>(mib)?;
    let mut c = first.alloc_zeros::<u8>(mib)?;
    // SAFETY: written before it is read.
    let mut pinned = unsafe { context.alloc_pinned::<u8>(mib) }?;
    pinned.as_mut_slice()?.fill(5);
    first.synchronize()?;
    let begin = second.record_event(Some(CU_EVENT_DEFAULT))?;
    for _ in 0..4 {
        second.memcpy_htod(&pinned, &mut b)?;
    }
    let end = second.record_event(Some(CU_EVENT_DEFAULT))?;
    println!("{} ms", begin.elapsed_ms(&end)?);
    first.memcpy_dtod(&b, &mut c)?;
    pinned.as_mut_slice()?.fill(0);
    second.memcpy_dtoh(&c, &mut pinned)?;
    assert!(pinned.as_slice()?.iter().all(|x| *x == 5));
    let too_much = first.alloc_zeros::<u8>(1 << 50).expect_err("more than there is");
    println!("{:?}", too_much.0);
    Ok(())
}

/// Memory, pinned memory, failures, what is not as it should be.
fn memory(g: &Gpu) -> ([u64; 4], [u64; 2], Value, [u64; 3]) {
    let of = ["peak_bytes", "live_bytes", "allocs", "frees"].map(|key| g.number(&format!("/devices/0/{key}")));
    let pinned = [g.number("/pinned_peak_bytes"), g.number("/pinned/live_bytes")];
    (of, pinned, g.at("/failed").clone(), ["unknown_frees", "untimed", "lost"].map(|key| g.number(&format!("/{key}"))))
}

/// Copies and memsets of each stream, the most first.
fn by_stream(g: &Gpu) -> Vec<u64> {
    let mut all: Vec<u64> = g.at("/streams").as_array().expect("a list").iter().map(|s| s["copies"].as_u64().expect("a number")).collect();
    all.retain(|n| *n > 0);
    all.sort_by_key(|n| std::cmp::Reverse(*n));
    all
}

fn sums<const N: usize>(of: [(&str, (u64, u64, u64)); N]) -> BTreeMap<String, (u64, u64, u64)> {
    of.map(|(k, v)| (k.to_owned(), v)).into()
}

#[test]
fn a_program_in_rust_on_cudarc_counts_once() {
    if std::env::var_os(IS_PROGRAM).is_some() {
        program().expect("the driver");
        std::process::exit(0);
    }
    let test = "a_program_in_rust_on_cudarc_counts_once";
    if skipped(test) {
        return;
    }
    driver();
    let ourselves = std::env::current_exe().expect("a program");
    let args = [&format!("clients::{test}"), "--exact", "--nocapture", "--test-threads=1"];
    let both = [(IS_PROGRAM, "1"), ("LD_LIBRARY_PATH", support::out_dir().to_str().expect("a path in UTF-8"))];
    for memshim in [Mode::Full, Mode::Fast] {
        let g = gpu_of(&ourselves, &format!("cuda_cudarc_{memshim:?}"), &args, memshim, (&[], &both));
        assert!(g.stdout.contains("0.175772 ms\nCUDA_ERROR_OUT_OF_MEMORY\n"), "{}", g.stdout);
        let expected = sums([
            ("D2D device", (1, MIB, 3048)),
            ("D2H pageable", (1, 100_000, 22_000)),
            ("D2H pinned", (1, MIB, 54_428)),
            ("H2D pageable", (1, 100_000, 18_666)),
            ("H2D pinned", (4, 4 * MIB, 175_772)),
            ("memset device", (2, 2 * MIB, 5398)),
        ]);
        assert_eq!(g.transfers(), expected, "{memshim:?}");
        let failed = json!([{"call": "cuMemAllocAsync", "code": 2, "count": 1}]);
        assert_eq!(memory(&g), ([100_000 + 2 * MIB, 0, 3, 3], [MIB, 0], failed, [0; 3]), "{memshim:?}");
        assert_eq!(by_stream(&g), [5, 5], "{memshim:?}");
    }
}

/// A program of `tests/programs/cuda` in Python, on the driver of our own.
fn in_python(test: &str, script: &str, module: &'static str, memshim: Mode) -> Option<Gpu> {
    if support::lacks(test, &[Need::Preload, Need::Module(module)]) {
        return None;
    }
    driver();
    let script = support::root().join("tests/programs/cuda").join(script);
    let both = [("LD_LIBRARY_PATH", support::out_dir().to_str().expect("a path in UTF-8"))];
    let args = [script.to_str().expect("a path in UTF-8")];
    Some(gpu_of(support::python().expect("checked before"), &format!("cuda_{test}_{memshim:?}"), &args, memshim, (&[], &both)))
}

#[test]
fn nvidias_own_binding_for_python_counts_once() {
    for memshim in [Mode::Full, Mode::Fast] {
        let Some(g) = in_python("nvidias_own_binding_for_python_counts_once", "bindings.py", "cuda.bindings", memshim) else { return };
        let expected = sums([
            ("D2D device", (1, MIB, 3048)),
            ("D2H pageable", (1, 102_400, 22_480)),
            ("D2H pinned", (3, 150_000, 13_500)),
            ("H2D pageable", (1, 102_400, 19_066)),
            ("H2D pinned", (3, 3 * MIB, 131_829)),
            ("memset device", (1, 2 * MIB, 3398)),
        ]);
        assert_eq!(g.transfers(), expected, "{memshim:?}");
        let failed = json!([{"call": "cuMemAlloc", "code": 2, "count": 1}]);
        assert_eq!(memory(&g), ([9 * MIB, 3 * MIB, 3, 2], [2 * MIB, 0], failed, [0; 3]), "{memshim:?}");
        assert_eq!(by_stream(&g), [8, 2], "{memshim:?}");
        assert!(g.number("/lookups/proc") > 400, "all by cuGetProcAddress: {}", g.at("/lookups"));
    }
}

#[test]
fn numbas_arrays_count_once() {
    let test = "numbas_arrays_count_once";
    let Some(g) = in_python(test, "numba_arrays.py", "numba_cuda", Mode::Fast) else { return };
    let expected = sums([
        ("D2D device", (1, MIB, 3048)),
        ("D2H pageable", (1, MIB, 211_715)),
        ("D2H pinned", (1, MIB, 54_428)),
        ("H2D pageable", (1, MIB, 176_762)),
        ("H2D pinned", (1, MIB, 43_943)),
    ]);
    assert_eq!(g.transfers(), expected);
    // It gives nothing back by itself, and ends its context.
    assert_eq!(memory(&g), ([4 * MIB, 0, 3, 0], [2 * MIB, 0], json!([]), [0; 3]));
    assert_eq!(by_stream(&g), [3, 2]);
}
