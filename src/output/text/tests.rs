use super::*;
use crate::analyze::report::*;
use crate::model::units::Bytes;

fn run(pid: u32, mib: u64) -> Run {
    Run {
        pid,
        ppid: 1,
        host: "node7".into(),
        command: vec!["python".into(), "run.py".into()],
        mode: Mode::Full,
        wall_s: 12.0,
        cpu_s: Some(6.0),
        end: End { kind: EndKind::Exited, code: Some(3), ..End::default() },
        events: Events { counted: 12, recorded: 12, single: 12, ..Events::default() }.into(),
        heap: Heap {
            seen: true,
            allocs: 6,
            frees: 6,
            requested_bytes: Bytes(6 << 20),
            peak_bytes: Bytes(5 << 20),
            peak_bound_bytes: Some(Bytes(0)),
            ..Heap::default()
        }
        .into(),
        rss: Rss {
            peak_bytes: Bytes(mib << 20),
            hwm_bytes: Some(Bytes(mib << 20)),
            at_peak: Some(AtPeak {
                rss: Bytes(mib << 20),
                heap: Some(Bytes(5 << 20)),
                file: Bytes(8 << 20),
                unaccounted: Some((mib as i64 - 13) << 20),
                ..AtPeak::default()
            }),
            ..Rss::default()
        },
        file: "trace.jsonl".into(),
        ..Run::default()
    }
}

fn screen(report: &Report, unicode: bool) -> String {
    let text = render(report, &Style { width: 100, unicode, pid: None, traces: vec!["trace.jsonl".into()] });
    [BOLD, YELLOW, PLAIN].iter().fold(text, |t, code| t.replace(code, ""))
}

#[test]
fn one_run_fits_a_screen_and_labels_its_numbers() {
    let text = screen(&Report { runs: vec![run(7, 20)], ..Report::default() }, true);
    for wanted in [
        "exit code 3 after 12.0 s wall, 6.00 s CPU (50 %)",
        "peak 20.0 MiB",
        "peak live 5.00 MiB (exact)",
        "unaccounted",
        "12 counted = 12 recorded + 0 lost",
    ] {
        assert!(text.contains(wanted), "{wanted}:\n{text}");
    }
    assert!(text.lines().count() < 40, "{text}");
}

#[test]
fn what_went_on_in_less_than_full_mode_says_so_and_what_helps() {
    let mut r = run(7, 20);
    (r.mode, r.full_until_s, r.cpu_lower_bound) = (Mode::Fast, Some(0.25), true);
    r.maps = Maps { anon: MapClass { peak_bytes: Bytes(1 << 20), ..MapClass::default() }, ..Maps::default() }.into();
    for (why, way) in
        [(Lowered::Cap, "run --max SIZE --mode full -- python run.py"), (Lowered::Unwritten, "run -o TRACE --mode full -- python")]
    {
        r.lowered = Some(why);
        let text = screen(&Report { runs: vec![r.clone()], ..Report::default() }, true);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for wanted in ["full mode until 250 ms: see `missing`", "6.00 s CPU at least", "may not be in it (see `missing`)", way] {
            assert!(words.contains(wanted), "{wanted}:\n{text}");
        }
    }
}

#[test]
fn differing_views_are_pointed_out() {
    let mut r = run(7, 100);
    r.rss.outside_hwm_bytes = Some(Bytes(50 << 20));
    let text = screen(&Report { runs: vec![r.clone()], ..Report::default() }, true);
    assert!(text.contains("differs   high-water mark 100 MiB from inside, 50.0 MiB from outside"), "{text}");
    r.rss.outside_hwm_bytes = Some(Bytes(99 << 20));
    assert!(screen(&Report { runs: vec![r], ..Report::default() }, true).contains("they agree"));
}

#[test]
fn a_limit_is_shown_beside_the_peak() {
    let mut r = run(7, 100);
    r.outside = Some(serde_json::json!({"cgroup": {"limit": 400 << 20, "oom_kills": 1}, "slurm": null}));
    let text = screen(&Report { runs: vec![r], ..Report::default() }, true);
    assert!(text.contains("limit 400 MiB (memory cgroup): the peak is 25 % of it"), "{text}");
    assert!(text.contains("the kernel killed 1 process(es)"), "{text}");
}

#[test]
fn of_many_processes_the_biggest_is_shown_and_the_list_is_bounded() {
    let mut runs: Vec<Run> = (0..50).map(|i| run(100 + i, 20 + u64::from(i))).collect();
    runs[1].ppid = 100;
    let text = screen(&Report { runs, ..Report::default() }, true);
    assert!(text.contains("pid 149 on node7") && text.contains("149 *") && text.contains("and 42 with lower peaks"), "{text}");
    assert!(text.lines().count() < 60, "{text}");
}

#[test]
fn lost_events_and_missing_things_are_said() {
    let mut r = run(7, 20);
    r.events.lost = 5;
    r.missing.push(Missing { what: "events of lane 2".into(), count: 5, why: "ring full".into() });
    let text = screen(&Report { runs: vec![r], ..Report::default() }, true);
    assert!(
        text.contains("+ 5 lost") && text.contains("missing   events of lane 2 (5): ring full") && text.contains("--mode full"),
        "{text}"
    );
}

#[test]
fn without_utf8_the_screen_is_ascii() {
    let mut r = run(7, 20);
    r.samples =
        (0..9).map(|i| Sample { t_s: f64::from(i), rss: Bytes(20 << 20), heap: Some(Bytes(5 << 20)), ..Sample::default() }).collect();
    let text = screen(&Report { runs: vec![r], ..Report::default() }, false);
    assert!(text.is_ascii(), "{text}");
}

#[test]
fn a_command_in_a_trace_cannot_steer_the_terminal() {
    let mut r = run(7, 20);
    r.command = vec!["a\nb\x1b[2J\u{9b}c".into()];
    r.notes.push("x\x07".into());
    let text = screen(&Report { runs: vec![r], ..Report::default() }, true);
    assert!(text.contains("a b?[2J?c") && text.contains("x?"), "{text}");
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
}

#[test]
fn eighty_columns_are_enough() {
    let mut r = run(7, 100);
    r.mode = Mode::Fast;
    r.command = vec!["/a/very/long/path/to/some/interpreter/python3".into(); 4];
    r.rss.outside_hwm_bytes = Some(Bytes(50 << 20));
    r.heap.allocs = 123_456_789;
    r.heap.temporary_allocs = Some(100_000_000);
    r.heap.by_function =
        (0..6).map(|i| (format!("function_{i}"), Function { allocs: 1_234_567, frees: Some(1), bytes: Bytes(9_999_999_999) })).collect();
    r.events = Events { counted: 123_456_789, recorded: 123_456_780, single: 12_345, lost: 9, unknown_frees: 123_456, failed: 7 }.into();
    r.missing.push(Missing {
        what: "single calls from then on (totals only)".into(),
        count: 12,
        why: "the trace reached MEMSHIM_MAX".into(),
    });
    r.own = Some(serde_json::json!({"spool": 5_000_000, "private": 1_000_000, "table": 123_456}));
    r.threads =
        (0..3).map(|i| Thread { tid: 4_000_000 + i, name: "fifteen_letters".into(), bytes: Bytes(1 << 40), ..Thread::default() }).collect();
    let mut child = r.clone();
    (child.pid, child.ppid) = (8, 7);
    let report = Report { runs: vec![r, child], ..Report::default() };
    let text = render(&report, &Style { width: 80, unicode: true, pid: None, traces: vec!["trace.jsonl".into()] });
    let text = [BOLD, YELLOW, PLAIN].iter().fold(text, |t, code| t.replace(code, ""));
    let wide: Vec<_> = text.lines().filter(|l| l.chars().count() > 80).collect();
    // A command to copy stays on one line.
    assert!(wide.iter().all(|l| l.starts_with("next")), "{wide:#?}");
    assert!(text.contains("123 456 789 allocations") && !text.contains("123\n"), "{text}");
}

#[test]
fn a_gpu_has_a_section_and_what_is_not_known_is_no_zero() {
    let mut r = run(7, 20);
    assert!(!screen(&Report { runs: vec![r.clone()], ..Report::default() }, true).contains("GPU"));
    let device = GpuDevice {
        index: Some(0),
        name: Some("Card".into()),
        peak_bytes: Bytes(3 << 30),
        reserved_peak_bytes: Bytes(4 << 30),
        total_bytes: Some(Bytes(8 << 30)),
        ..GpuDevice::default()
    };
    let copy = GpuTransfer { direction: "H2D".into(), memory: "pinned".into(), count: 2, bytes: Bytes(1 << 20), ..GpuTransfer::default() };
    let stream = GpuStream { kind: "per thread".into(), kernels: 9, ..GpuStream::default() };
    let gpu = Gpu { timing: "off".into(), devices: vec![device], transfers: vec![copy], streams: vec![stream], ..Gpu::default() };
    r.gpu = Some(gpu);
    let text = screen(&Report { runs: vec![r], ..Report::default() }, true);
    for wanted in ["GPU       peak live 3.00 GiB on device 0 Card, 50 % of the device", "H2D pinned", "not known", "MEMSHIM_GPU_TIMING=off"]
    {
        assert!(text.contains(wanted), "{wanted}:\n{text}");
    }
}

#[test]
fn phases_that_repeat_have_a_table_and_what_stands_out_is_explained() {
    let latency = Latency { mean: 1.1e-3, median: 1e-3, p95: 1.5e-3, p99: 2.5e-3, min: 9e-4, max: 6e-2, cv: 0.5 };
    let frame = Frame { function: Some("keep".into()), ..Frame::default() };
    let outlier = Outlier {
        index: 30,
        wall_s: 6e-2,
        begin_s: 0.5,
        waited: Some(true),
        differs: vec![Difference { what: "minor_faults", value: 5000.0, median: 3.0 }],
        ..Outlier::default()
    };
    let mut steps = Steps {
        growth_low_bytes: 1000.0,
        growth_high_bytes: 1050.0,
        growth_total_bytes: 1024e3,
        leaks: true,
        // Two ways to one line.
        sites: [800, 88].map(|kib| PhaseSite { bytes: Bytes(kib << 10), frames: vec![frame.clone()], ..PhaseSite::default() }).into(),
        sites_from: Some(111),
        outliers: vec![outlier.clone(), outlier],
        ..Steps::default()
    };
    steps.growth.maps = Some(Growth { leaks: true, per_count_bytes: 4096.0, low_bytes: 4096.0, high_bytes: 4096.0, ..Growth::default() });
    let phase = |name: &str, steps: Steps, growth: f64| Phase {
        name: name.into(),
        path: vec![name.into()],
        source: "api",
        count: 1000,
        latency,
        growth_per_count_bytes: Some(growth),
        steps: Some(steps),
        ..Phase::default()
    };
    let even = Steps { growth_high_bytes: 48.0, ..Steps::default() };
    let mut r = run(7, 20);
    let late = Steps { growth_high_bytes: 117.0 * 1024.0, ..Steps::default() };
    r.phases = vec![phase("step", steps, 1024.0), phase("even", even, 24.0), phase("late", late, 36e3)];
    let report = Report { runs: vec![r], ..Report::default() };
    let text = screen(&report, true);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for wanted in [
        "phase times min median mean p95 p99 max CV growth",
        "step 1 000 900 µs 1.00 ms 1.10 ms 1.50 ms 2.50 ms 60.0 ms 50 % 1.00 KiB",
        "`step` grows by 1.00 KiB each time (1000 B to 1.03 KiB with 95 % confidence), 0.98 MiB in 1 000 times: a leak",
        "kept since number 111: 888 KiB by keep",
        "`step` grows by 4.00 KiB of committed maps each time",
        "no leak of the heap, with 95 % confidence: `even` (0 B to 48 B each time)",
        "no leak of the heap was found, though with 95 % confidence there is room for one: `late` (0 B to 117 KiB each time)",
        "but number 30 took 60.0 ms at 500 ms; it waited 59.0 ms longer, and had minor faults 5 000 (usually 3) (1 more stands out",
    ] {
        assert!(words.contains(wanted), "{wanted}:\n{text}");
    }
    let narrow = render(&report, &Style { width: 60, unicode: true, pid: None, traces: vec![] });
    let titles = narrow.lines().find(|l| l.contains("growth") && l.contains("times")).expect("the table");
    assert!(["median", "p95", "max"].iter().all(|t| titles.contains(t)) && !titles.contains("min"), "{narrow}");
}

#[test]
fn what_is_left_out_of_a_table_of_steps_is_counted() {
    let phase = |at: usize| Phase {
        name: format!("p{at}"),
        path: vec![format!("p{at}")],
        source: "api",
        count: 20,
        wall_s: at as f64,
        steps: Some(Steps::default()),
        ..Phase::default()
    };
    let words = |phases: usize| {
        let report = Report { runs: vec![Run { phases: (0..phases).map(phase).collect(), ..run(7, 20) }], ..Report::default() };
        screen(&report, true).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(!words(5).contains("that repeat and"));
    assert!(words(6).contains("and 1 more phase that repeats and took less time (all in --json)"));
    assert!(words(8).contains("and 3 more phases that repeat and took less time (all in --json)"));
}

#[test]
fn arenas_of_python_are_said_where_they_are_a_part_of_the_memory() {
    let of = |arenas: u64, allocs: Option<u64>| {
        let python = Python { arenas_bytes: Some(Bytes(arenas << 20)), allocs, frees: allocs, ..Python::default() };
        let report = Report { runs: vec![Run { python: Some(python), ..run(7, 20) }], ..Report::default() };
        screen(&report, true).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let hint = "run again with --python-alloc";
    assert!(of(3, None).contains("3.00 MiB of the maps are arenas of its small objects") && of(3, None).contains(hint));
    assert!(!of(1, None).contains(hint) && !of(3, Some(7)).contains(hint), "little, or recorded");
}

fn listed(site: Site) -> String {
    let memory = if site.kind == "heap" { "heap" } else { "maps" };
    let view = View { total: Some(0), ..View::default() };
    let sums = SiteSums { sites: 1, memory, instant: "the peak".into(), ..SiteSums::default() };
    let run = Run { sites: vec![site], sites_total: sums.into(), sites_view: Some(view), ..run(7, 20) };
    let style = Style { width: 100, unicode: true, pid: None, traces: vec![] };
    render_sites(&Report { runs: vec![run], ..Report::default() }, &style).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn of_a_site_of_maps_nothing_is_said_of_blocks() {
    let anon = Site { kind: "anon", live_at_peak_bytes: Some(Bytes(8192)), peak_bytes: Bytes(8192), allocs: 2, ..Site::default() };
    let text = listed(anon);
    assert!(text.contains("anon: live 8.00 KiB; own peak 8.00 KiB; total 0 B in 2 calls; live at the end 0 B"), "{text}");
    assert!(!text.contains("in 0") && !text.contains("blocks") && !text.contains("temporary"), "{text}");
}

#[test]
fn an_estimated_peak_of_a_site_has_its_error() {
    let of = |peak_bound_bytes, peak_stderr_bytes| Site {
        kind: "heap",
        peak_bytes: Bytes(1 << 20),
        peak_bound_bytes,
        peak_stderr_bytes,
        leaked_allocs: Some(0),
        ..Site::default()
    };
    assert!(listed(of(Bytes(0), 2048.0)).contains("own peak 1.00 MiB ± 2.00 KiB; total"), "{}", listed(of(Bytes(0), 2048.0)));
    assert!(listed(of(Bytes(1 << 20), 2048.0)).contains("own peak 1.00 MiB to 2.00 MiB ± 2.00 KiB; total"));
    assert!(listed(of(Bytes(0), 0.0)).contains("own peak 1.00 MiB; total"), "it is exact");
}

#[test]
fn each_figure_of_a_phase_has_its_bound_where_that_is_more_than_its_last_digits() {
    let of = |bound: u64| Phase {
        name: "solve".into(),
        path: vec!["solve".into()],
        source: "api",
        count: 1,
        heap_peak_bytes: Some(Bytes(3 << 20)),
        heap_peak_bound_bytes: Some(Bytes(bound)),
        heap_persistent_bytes: Some(-(1 << 20)),
        heap_persistent_bound_bytes: Some(Bytes(2 * bound)),
        heap_transient_bytes: Some(Bytes(2 << 20)),
        heap_transient_bound_bytes: Some(Bytes(3 * bound)),
        ..Phase::default()
    };
    let words = |phase: Phase| {
        let report = Report { runs: vec![Run { phases: vec![phase], ..run(7, 20) }], ..Report::default() };
        screen(&report, true).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let text = words(of(64 << 10));
    assert!(text.contains("3.00 MiB ±64.0 KiB −1.00 MiB ±128 KiB 2.00 MiB ±192 KiB"), "{text}");
    let text = words(of(1 << 10));
    assert!(text.contains("3.00 MiB −1.00 MiB 2.00 MiB"), "{text}");
}

/// Children that were forked share what they had then, however small each is; less and "at least" are not said in one breath.
#[test]
fn forked_children_are_no_sum_and_that_is_said() {
    let job = |lower: bool| Job {
        peak_bytes: Bytes(900 << 20),
        request_mem_bytes: Bytes(990 << 20),
        request_lower_bound: lower,
        ..Job::default()
    };
    let child = |pid: u32| {
        let mut r = run(pid, 9);
        r.kin.forked = true;
        r.rss.start_bytes = Some(Bytes(8 << 20));
        r
    };
    let text = |children: u32, lower: bool| {
        let runs = std::iter::once(run(7, 10)).chain((0..children).map(|i| child(100 + i))).collect();
        let text = screen(&Report { runs, job: job(lower), ..Report::default() }, true);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (few, many, unseen) = (text(1, true), text(200, false), text(200, true));
    assert!(!few.contains("share pages") && few.contains("ask for 990 MiB at least"), "{few}");
    assert!(many.contains("each counts them as its own: less may do for them") && !many.contains("may need more"), "{many}");
    assert!(!unseen.contains("990 MiB at least") && unseen.contains("those whose memory nobody saw to the end may need more"), "{unseen}");
}

/// What a forked child inherited of maps is in them, or is said not to be known.
#[test]
fn maps_of_a_parent_are_said() {
    let text = |inherited: Option<u64>| {
        let mut r = run(7, 200);
        let anon = MapClass { peak_bytes: Bytes(90 << 20), committed_bytes: Bytes(90 << 20), ..MapClass::default() };
        r.kin.forked = inherited != Some(0);
        r.maps = Maps { anon, inherited_bytes: inherited.map(|mib| Bytes(mib << 20)), ..Maps::default() }.into();
        r.rss.at_peak.as_mut().unwrap().maps_anon = Some(Bytes(90 << 20));
        screen(&Report { runs: vec![r], ..Report::default() }, true).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (none, some, unknown) = (text(Some(0)), text(Some(80)), text(None));
    assert!(none.contains("committed by the program's own mmap") && !none.contains("inherited"), "{none}");
    assert!(some.contains("by mmap, those inherited too") && some.contains("inherited 80.0 MiB at the fork"), "{some}");
    assert!(unknown.contains("with its parent's maps: not known here") && unknown.contains("read its parent's trace with it"), "{unknown}");
}
