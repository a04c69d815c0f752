//! The processes below a target, as they are seen from outside: for those of them that leave no trace.

use super::outside::monotonic_ns;
use super::proc;
use super::side;
use memshim_format::proc::field;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// How many are looked at each time: the view of children is a help, the cost is bounded.
const LOOKED_AT: usize = 64;
/// How many are remembered, and how many of these are told.
const KEPT: usize = 16_384;
const TOLD: usize = 512;

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Below {
    /// By pid and start.
    all: BTreeMap<(i32, u64), Process>,
}

#[derive(Debug, Clone)]
struct Process {
    ppid: i32,
    name: String,
    /// Largest VmHWM sampled.
    hwm: u64,
    from_ns: u64,
    to_ns: u64,
}

impl Below {
    /// Looks at what lives below process `root`.
    pub fn look(&mut self, root: i32) {
        let mut queue = proc::children(root);
        let mut next = 0;
        while next < queue.len().min(LOOKED_AT) {
            self.look_at(queue[next]);
            queue.extend(proc::children(queue[next]));
            next += 1;
        }
    }

    fn look_at(&mut self, pid: i32) {
        let Some(stat) = proc::stat(pid) else { return };
        let status = std::fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
        // A zombie has none.
        let Some(hwm) = field(&status, b"VmHWM") else { return };
        let status = String::from_utf8_lossy(&status);
        let name = status.lines().next().and_then(|l| l.strip_prefix("Name:\t")).unwrap_or("");
        let key = (pid, stat.start_ticks);
        if self.all.len() >= KEPT && !self.all.contains_key(&key) {
            return;
        }
        let now = monotonic_ns();
        let new = || Process { ppid: stat.ppid, name: String::new(), hwm, from_ns: now, to_ns: now };
        let process = self.all.entry(key).or_insert_with(new);
        process.hwm = process.hwm.max(hwm);
        process.to_ns = now;
        if process.name != name {
            process.name = name.to_owned();
        }
    }

    /// The largest VmHWM of any of them.
    pub fn hwm(&self) -> Option<u64> {
        self.all.values().map(|p| p.hwm).max()
    }

    /// Those that had most, as `docs/trace-format.md` has it.
    pub fn told(&self) -> Value {
        let mut all: Vec<_> = self.all.iter().collect();
        all.sort_by_key(|(_, p)| std::cmp::Reverse(p.hwm));
        let row = |((pid, start), p): &(&(i32, u64), &Process)| {
            json!([pid, start, p.ppid, side::text(p.name.as_bytes()), p.hwm, p.from_ns, p.to_ns])
        };
        all.iter().take(TOLD).map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_grandchild_is_seen_with_its_name_and_its_memory() {
        let mut child = Command::new("/bin/sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let mut below = Below::default();
        let sleeps =
            |below: &Below| below.told().as_array().unwrap().iter().any(|row| row[3] == "sleep" && row[4].as_u64() > Some(100 << 10));
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !sleeps(&below) {
            assert!(std::time::Instant::now() < until, "{}", below.told());
            below.look(std::process::id() as i32);
            std::thread::yield_now();
        }
        let rows = below.told();
        let row = rows.as_array().unwrap().iter().find(|row| row[3] == "sleep").unwrap();
        assert_eq!(row[2], child.id());
        assert!(below.hwm() >= row[4].as_u64() && row[5].as_u64() <= row[6].as_u64());
        let pid = row[0].as_i64().unwrap() as i32;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
        child.wait().unwrap();
    }
}
