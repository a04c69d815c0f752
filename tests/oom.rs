//! Promises about memory that is not given: the kernel's kill for want of it is said, also where the limit is an ancestor's.
mod support;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use support::{Need, Session, lossy};

const LIMIT: u64 = 128 << 20;

/// A memory cgroup with a limit, below our own, and one without in it; both are gone at the end.
struct Groups(PathBuf);

impl Groups {
    fn make(name: &str) -> Option<Groups> {
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().find_map(|l| l.split_once(":memory:"))?.1.to_owned();
        let root = Path::new("/sys/fs/cgroup/memory");
        let inside = root.join(own.trim_start_matches('/'));
        let groups = Groups(if inside.is_dir() { inside } else { root.to_owned() }.join(format!("{name}-{}", std::process::id())));
        std::fs::create_dir(&groups.0).ok()?;
        let hierarchical = std::fs::read_to_string(groups.0.join("memory.use_hierarchy")).ok()?;
        std::fs::write(groups.0.join("memory.limit_in_bytes"), LIMIT.to_string()).ok()?;
        std::fs::create_dir(groups.inner()).ok()?;
        (hierarchical.trim() == "1").then_some(groups)
    }

    fn inner(&self) -> PathBuf {
        self.0.join("step")
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        // A process that has just ended can still be in it.
        for folder in [self.inner(), self.0.clone()] {
            for _ in 0..100 {
                if std::fs::remove_dir(&folder).is_ok() || !folder.exists() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

#[test]
fn a_kill_for_want_of_memory_is_said_where_an_ancestor_has_the_limit() {
    let test = "a_kill_for_want_of_memory_is_said_where_an_ancestor_has_the_limit";
    if support::lacks(test, &[Need::Root, Need::Preload]) {
        return;
    }
    let Some(groups) = Groups::make("memshim-oom") else { return support::skip(test, "needs a memory cgroup (v1) that can be written") };
    let dir = support::fresh_dir(test);
    let program = support::build("touches.c", "touches", &[]);
    let ran = |name: &str, mib: &str| {
        let at = dir.join(name);
        std::fs::create_dir(&at).expect("a folder");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", r#"echo $$ > "$GROUP/cgroup.procs" && exec "$MEMSHIM" run -o t.jsonl -- "$PROGRAM" $MIB"#]);
        command.env("GROUP", groups.inner()).env("MEMSHIM", support::memshim()).env("PROGRAM", &program).env("MIB", mib);
        let ran = Session::start(command.current_dir(&at), &at).finish(Duration::from_secs(60));
        let report: Value = serde_json::from_str(&support::analyze(&at.join("t.jsonl")).expect("a report")).expect("JSON");
        let screen = Command::new(support::memshim()).arg("analyze").arg(at.join("t.jsonl")).output().expect("analyze");
        let run = report["runs"][0].clone();
        (ran.end(), lossy(&ran.stderr), run, lossy(&screen.stdout).split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let (end, said, run, screen) = ran("killed", "1000");
    assert_eq!((&*end, &run["end"]["kind"], &run["end"]["signal"]), ("exit 137", &"signaled".into(), &9.into()), "{said}");
    assert!(
        said.contains("(limit 128 MiB)") && said.contains("the kernel killed 1 process(es) of this memory group for want of memory"),
        "{said}"
    );
    let group = &run["outside"]["cgroup"];
    assert_eq!((&group["limit"], &group["oom_kills"]), (&LIMIT.into(), &1.into()), "{group}");
    assert!(screen.contains("for want of memory") || screen.contains("out of memory"), "{screen}");
    let (end, said, run, _) = ran("fits", "20");
    assert_eq!((&*end, &run["outside"]["cgroup"]["oom_kills"]), ("exit 0", &0.into()), "{said}");
    assert!(said.contains("(limit 128 MiB)") && !said.contains("killed"), "{said}");
}
