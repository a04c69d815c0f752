//! One look at a process from outside: what /proc says of it, as the values of `rss` and `snap` lines.

use crate::launch::cgroup::Cgroup;
use crate::launch::proc;
use memshim_format::proc::{ROLLUP, fields};
use serde_json::{Map, Value, json};

/// What every look takes: cheap, and allowed to everybody.
#[derive(Debug, Clone, Default)]
pub struct Look {
    pub t: u64,
    /// Bytes: the keys of an `rss` line.
    pub layers: Map<String, Value>,
    pub rss: u64,
    usage: Value,
    children: Value,
}

/// Keys of the line, and of /proc/PID/status.
const LAYERS: [(&str, &str); 10] = [
    ("rss", "VmRSS"),
    ("hwm", "VmHWM"),
    ("anon", "RssAnon"),
    ("file", "RssFile"),
    ("shmem", "RssShmem"),
    ("swap", "VmSwap"),
    ("size", "VmSize"),
    ("stk", "VmStk"),
    ("vm_peak", "VmPeak"),
    ("hugetlb", "HugetlbPages"),
];

/// Looks at a process; `None` once it has no memory any more.
pub fn look(pid: i32, t: u64, tick_ns: u64) -> Option<Look> {
    let status = proc::text(format!("/proc/{pid}/status")).ok()?;
    let layers = bytes_of(&status, &LAYERS);
    let rss = layers.get("rss").and_then(Value::as_u64)?;
    let stat = proc::text(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<u64> = stat.rsplit_once(')').map_or("", |r| r.1).split_ascii_whitespace().map(|f| f.parse().unwrap_or(0)).collect();
    let number = |key: &str| status.lines().find_map(|l| l.strip_prefix(key)?.trim().parse::<u64>().ok()).unwrap_or(0);
    // Fields by their numbers in proc(5), the third coming first here.
    let field = |n: usize| fields.get(n - 3).copied().unwrap_or(0);
    let usage = json!({
        "minflt": field(10), "majflt": field(12), "utime_ns": field(14) * tick_ns, "stime_ns": field(15) * tick_ns,
        "nvcsw": number("voluntary_ctxt_switches:"), "nivcsw": number("nonvoluntary_ctxt_switches:"),
    });
    let children = json!({"minflt": field(11), "majflt": field(13), "utime_ns": field(16) * tick_ns, "stime_ns": field(17) * tick_ns});
    Some(Look { t, layers, rss, usage, children })
}

fn bytes_of<const N: usize>(text: &str, keys: &[(&str, &str); N]) -> Map<String, Value> {
    let found = fields(text.as_bytes(), keys.map(|(_, name)| name.as_bytes()));
    keys.iter().zip(found).filter_map(|((key, _), value)| Some((key.to_string(), value?.into()))).collect()
}

impl Look {
    pub fn rss_line(&self) -> Value {
        let mut line = Value::Object(self.layers.clone());
        line["type"] = "rss".into();
        line["t"] = self.t.into();
        line
    }

    /// A layered snapshot; with `deep`, also what only its owner may see and what costs the process a moment.
    pub fn snapshot(&self, pid: i32, why: &str, cgroup: Option<&Cgroup>, deep: bool) -> Value {
        let mut line = self.rss_line();
        line["type"] = "snap".into();
        line["why"] = why.into();
        line["self"] = self.usage.clone();
        line["children"] = self.children.clone();
        if let Some(group) = cgroup {
            let r = group.read();
            line["cgroup"] = json!({"v": group.version(), "current": r.current, "peak": r.peak, "limit": r.limit.map(|l| l.0)});
        }
        if deep && let Ok(text) = proc::text(format!("/proc/{pid}/smaps_rollup")) {
            line["rollup"] = Value::Object(bytes_of(&text, &ROLLUP));
        }
        if deep && let Ok(text) = proc::text(format!("/proc/{pid}/io")) {
            let of = |key: &str| text.lines().find_map(|l| l.strip_prefix(key)?.trim().parse::<u64>().ok());
            line["io"] = json!({
                "read": of("rchar:"), "written": of("wchar:"), "storage_read": of("read_bytes:"), "storage_written": of("write_bytes:"),
            });
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_at_ourselves_has_every_layer() {
        let pid = std::process::id() as i32;
        let look = look(pid, 7, 10_000_000).unwrap();
        let snap = look.snapshot(pid, "peak", None, true);
        for key in ["rss", "hwm", "anon", "file", "size", "stk"] {
            assert!(snap[key].as_u64().is_some_and(|n| n > 0), "{key} {snap}");
        }
        assert!(snap["rollup"]["pss"].as_u64().unwrap() > 100_000 && snap["self"]["minflt"].as_u64().unwrap() > 100, "{snap}");
        assert_eq!((look.rss_line()["t"].as_u64(), snap["why"].as_str()), (Some(7), Some("peak")));
        assert!(super::look(i32::MAX - 1, 0, 1).is_none());
    }
}
