//! Promises about programs that call the runtime, which calls the driver: each of their calls counts once. On a runtime of our own, and, as far as it
//! goes on a driver that is not NVIDIA's, on theirs: from the nvidia packages of the test's Python, or the folders that `CUDART_FOLDERS` names, with commas.

use super::*;

/// A runtime as a library and as an archive: flags that link a program to it.
fn our_runtime(linked_in: bool) -> Vec<String> {
    driver();
    let dir = support::out_dir().to_str().expect("a path in UTF-8").to_owned();
    let at = format!("-Wl,-rpath,{dir}");
    if linked_in {
        let object = support::build("cuda/minirt.c", "minirt.o", &["-c"]);
        return vec![object.to_str().expect("a path in UTF-8").to_owned(), at];
    }
    support::build("cuda/minirt.c", "libminirt.so", &["-shared", "-fPIC", "-Wl,-soname,libminirt.so", &at]);
    vec![format!("-L{dir}"), "-l:libminirt.so".to_owned(), at]
}

#[test]
fn what_is_called_by_the_runtime_counts_once() {
    if skipped("what_is_called_by_the_runtime_counts_once") {
        return;
    }
    for linked_in in [false, true] {
        let flags = our_runtime(linked_in);
        let name = if linked_in { "cuda_runtime_linked_in" } else { "cuda_runtime_shared" };
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let program = support::build("cuda/runtime.c", name, &flags);
        for memshim in [Mode::Full, Mode::Fast] {
            let g = gpu_of(&program, &format!("{name}_{memshim:?}"), &["all"], memshim, (&[], &[]));
            let expected = [
                ("D2D device", (5, 450_000, 10_450)),
                ("D2H pageable", (5, 350_000, 80_000)),
                ("D2H pinned", (10, 500_000, 45_000)),
                ("H2D pageable", (10, 1_000_000, 186_660)),
                ("H2D pinned", (14, 2_012_000, 108_480)),
                ("memset device", (5, 200_000, 10_130)),
            ];
            assert_eq!(g.transfers(), expected.map(|(k, v)| (k.to_owned(), v)).into(), "{name}");
            let of = ["peak_bytes", "live_bytes", "allocs", "frees"].map(|key| g.number(&format!("/devices/0/{key}")));
            assert_eq!(of, [14 * MIB, 8 * MIB, 4, 3], "{name}");
            assert_eq!((g.number("/pinned_peak_bytes"), g.number("/unknown_frees"), g.number("/untimed")), (4 * MIB, 0, 0), "{name}");
            let graphs = ["captures", "instantiations", "launches"].map(|key| g.number(&format!("/graphs_total/{key}")));
            assert_eq!((graphs, g.at("/graphs_total/bytes")), ([1, 1, 6], &json!({"H2D": 6000})), "{name}");
            let streams = g.at("/streams").as_array().expect("a list");
            assert_eq!(streams.iter().map(|s| s["kernels"].as_u64().expect("a number")).sum::<u64>(), 5, "{name}");
            assert_eq!(
                streams.iter().filter(|s| s["kind"] == "per thread").map(|s| s["copies"].clone()).collect::<Vec<_>>(),
                [4],
                "{name}"
            );
            assert_eq!(*g.at("/failed"), json!([]), "{name}");
            // 21 functions, 18 in two flavours, itself in two ABIs, a probe, and one that there is not. Not hooked: the last two, eight of the first and
            // one of the second.
            assert_eq!(*g.at("/lookups"), json!({"dlsym": 1, "proc": 61, "hooked": 50}), "{name}");
        }
    }
}

/// Folders with NVIDIA's runtime: a library of this major version and its archive.
fn real_runtimes(major: u32) -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var("CUDART_FOLDERS").map_or(vec![], |all| all.split(',').map(PathBuf::from).collect());
    let ask = "import nvidia; print('\\n'.join(nvidia.__path__))";
    let packages = support::python().and_then(|p| Command::new(p).args(["-c", ask]).output().ok()).map(|o| support::lossy(&o.stdout));
    for at in packages.iter().flat_map(|p| p.lines()).map(PathBuf::from) {
        folders.extend([at.join("cuda_runtime/lib"), at.join(format!("cu{major}/lib"))]);
    }
    folders.into_iter().find(|f| f.join(format!("libcudart.so.{major}")).exists() && f.join("libcudart_static.a").exists())
}

#[test]
fn nvidias_own_runtime_looks_up_through_us_and_ends_as_without() {
    let test = "nvidias_own_runtime_looks_up_through_us_and_ends_as_without";
    if skipped(test) {
        return;
    }
    driver();
    let out = support::out_dir().to_str().expect("a path in UTF-8");
    for major in [12, 13] {
        let Some(folder) = real_runtimes(major) else {
            support::skip(
                &format!("{test} (CUDA {major})"),
                "needs NVIDIA's package of the runtime in the tests' Python, or CUDART_FOLDERS",
            );
            continue;
        };
        let folder = folder.to_str().expect("a path in UTF-8");
        let (library, archive) = (format!("-l:libcudart.so.{major}"), format!("{folder}/libcudart_static.a"));
        let shared = [format!("-L{folder}"), library, format!("-Wl,-rpath,{folder}")];
        let linked_in = [archive, "-lrt".to_owned(), "-lm".to_owned(), "-lstdc++".to_owned()];
        for (how, flags) in [("shared", &shared[..]), ("linked_in", &linked_in[..])] {
            let name = format!("cuda_real_{major}_{how}");
            let program = support::build("cuda/runtime_real.c", &name, &flags.iter().map(String::as_str).collect::<Vec<_>>());
            let g = gpu_of(&program, &name, &["all"], Mode::Full, (&[], &[("LD_LIBRARY_PATH", out)]));
            assert!(g.stdout.contains(&format!("version of the runtime: 0, {major}0")), "{name}: {}", g.stdout);
            let lookups = ["dlsym", "proc", "hooked"].map(|key| g.number(&format!("/lookups/{key}")));
            assert!(lookups[0] >= 1 && lookups[1] >= 400 && lookups[2] >= 100, "{name}: {lookups:?}");
            assert_eq!((g.number("/lost"), g.at("/transfers")), (0, &json!([])), "{name}");
        }
    }
}
