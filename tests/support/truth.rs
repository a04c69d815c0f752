//! What a trace says, held against what its program said of itself.

use super::artifacts::{memshim, release, root};
use super::lossy;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// Holds TRUTH lines against a trace; the error is the last line of what `check-truth` said.
pub fn check_truth(trace: &Path, truth: &[u8]) -> Result<(), String> {
    let script = root().join("scripts/check-truth");
    let mut command = Command::new(&script);
    command.arg(trace).env("TRACE", trace).env("MEMSHIM_BIN", memshim()).env("MEMSHIM_TARGET_DIR", release().parent().expect("a parent"));
    let out = bounded(&mut command, truth)?;
    if out.status.success() {
        return Ok(());
    }
    let said = lossy(&out.stdout) + &lossy(&out.stderr);
    Err(format!("truth: {}", said.trim().lines().last().unwrap_or("no reason given")))
}

/// `memshim analyze --json` of a trace; the error is what it printed and how it ended.
pub fn analyze(trace: &Path) -> Result<String, String> {
    let out = bounded(Command::new(memshim()).args(["analyze", "--json"]).arg(trace), &[])?;
    if out.status.success() { Ok(lossy(&out.stdout)) } else { Err(format!("{}: {}", out.status, lossy(&out.stderr))) }
}

/// Runs a command of the project's own with `input`, two minutes at most.
fn bounded(command: &mut Command, input: &[u8]) -> Result<Output, String> {
    fn reader(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
        thread::spawn(move || {
            let mut bytes = vec![];
            let _ = pipe.read_to_end(&mut bytes);
            bytes
        })
    }
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().map_err(|e| format!("{command:?}: {e}"))?;
    let (stdout, stderr) = (child.stdout.take().map(reader), child.stderr.take().map(reader));
    let _ = child.stdin.take().expect("piped").write_all(input);
    let limit = Instant::now() + Duration::from_secs(120);
    let status = loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) => break status,
            None if Instant::now() < limit => sleep(Duration::from_millis(2)),
            None => {
                let _ = child.kill();
                return Err(format!("{command:?}: no end in two minutes"));
            }
        }
    };
    let collect = |handle: Option<thread::JoinHandle<Vec<u8>>>| handle.and_then(|h| h.join().ok()).unwrap_or_default();
    Ok(Output { status, stdout: collect(stdout), stderr: collect(stderr) })
}

/// Allocations and frees of exactly `size` bytes in the `sizes` tables of `analyze --json`, over all processes.
pub fn counted(report: &serde_json::Value, size: u64) -> (u64, u64) {
    let runs = report["runs"].as_array().map_or(&[][..], Vec::as_slice);
    let rows = runs.iter().filter_map(|run| run["heap"]["sizes"].as_array()).flatten().filter(|row| row[0] == size);
    rows.fold((0, 0), |(a, f), row| (a + row[1].as_u64().unwrap_or(0), f + row[2].as_u64().unwrap_or(0)))
}

/// In full mode every process's counted events are recorded or lost; none is lost unless `may_lose`.
pub fn conserved(report: &serde_json::Value, may_lose: bool) -> Result<(), String> {
    let runs = report["runs"].as_array().ok_or("no runs")?;
    for run in runs {
        let number = |key: &str| run["events"][key].as_u64().ok_or(format!("no events.{key} for process {}", run["pid"]));
        let (counted, recorded, lost) = (number("counted")?, number("recorded")?, number("lost")?);
        if counted != recorded + lost || (lost != 0 && !may_lose) {
            return Err(format!("process {} counted {counted} events, recorded {recorded}, lost {lost}", run["pid"]));
        }
    }
    Ok(())
}
