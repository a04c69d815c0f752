//! Promises about phases of programs that use a GPU.

use super::*;

#[test]
fn a_phase_has_its_own_device_memory_and_transfers() {
    if skipped("a_phase_has_its_own_device_memory_and_transfers") {
        return;
    }
    for mode in [Mode::Full, Mode::Fast] {
        let g = gpu_with("phases", "stages", "proc", mode, &[]);
        let phases = g.run["phases"].as_array().expect("phases");
        let of = |name: &str| {
            let p = phases.iter().find(|p| p["name"] == name).expect("the phase");
            let mib = |key: &str| p[key].as_f64().expect("a number") / MIB as f64;
            ["gpu_peak_bytes", "gpu_persistent_bytes", "pinned_peak_bytes", "h2d_bytes", "d2h_bytes"].map(mib)
        };
        assert_eq!(of("load"), [4.0, 4.0, 0.0, 3.0, 0.0]);
        assert_eq!(of("compute"), [15.0, 0.0, 2.0, 2.0, 4.0]);
        assert_eq!(of("store"), [4.0, -4.0, 0.0, 0.0, 4.0]);
        // The driver's own start, and that of its first context.
        let start = phases.iter().find(|p| p["name"] == "CUDA start").expect("the phase");
        assert_eq!((&start["source"], &start["count"], &start["open"]), (&"process".into(), &2.into(), &0.into()));
        assert!(start["end_s"].as_f64() <= phases[0]["begin_s"].as_f64() && phases[0]["name"] == "load", "{start}");
    }
}
