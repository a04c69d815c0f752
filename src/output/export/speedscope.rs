//! The JSON of speedscope (<https://www.speedscope.app>): one profile for each measure.

use std::collections::HashMap;
use std::io::{self, Write};

use serde_json::{Value, json};

use super::title;
use crate::analyze::profile::Profile;
use crate::analyze::report::Frame;
use crate::analyze::views::Measure;
use crate::model::units::whole;

/// All measures, that asked for first.
pub fn write(profile: &Profile, measure: Measure, out: &mut impl Write) -> io::Result<()> {
    let others = [Measure::Peak, Measure::Leaked, Measure::Temporary, Measure::Total];
    let measures: Vec<Measure> =
        std::iter::once(measure).chain(others.into_iter().filter(|m| *m != measure && profile.tells(*m))).collect();
    let mut frames: Vec<Value> = profile.frames.iter().map(frame).collect();
    let mut extra = Extra { frames: &mut frames, known: HashMap::new() };
    let profiles: Vec<Value> = measures.into_iter().map(|m| sampled(profile, m, &mut extra)).collect();
    let all = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": concat!("memshim ", env!("CARGO_PKG_VERSION")),
        "name": profile.processes.first().map(|p| p.command.clone()),
        "activeProfileIndex": 0,
        "shared": {"frames": frames},
        "profiles": profiles,
    });
    serde_json::to_writer(&mut *out, &all)?;
    out.write_all(b"\n")
}

fn frame(f: &Frame) -> Value {
    let name = f.function.clone().unwrap_or_else(|| crate::analyze::views::label(f));
    let mut value = json!({"name": name});
    if let Some(file) = f.file.as_ref().or(f.module.as_ref()) {
        value["file"] = json!(file);
    }
    if let Some(line) = f.line {
        value["line"] = json!(line);
    }
    value
}

/// Frames that are none of the program's: processes, the missing stack.
struct Extra<'a> {
    frames: &'a mut Vec<Value>,
    known: HashMap<String, usize>,
}

impl Extra<'_> {
    fn number(&mut self, name: String) -> usize {
        let frames = &mut *self.frames;
        *self.known.entry(name).or_insert_with_key(|name| {
            frames.push(json!({"name": name}));
            frames.len() - 1
        })
    }
}

fn sampled(profile: &Profile, measure: Measure, extra: &mut Extra) -> Value {
    let (mut samples, mut weights) = (Vec::new(), Vec::new());
    for p in &profile.processes {
        for (stack, sums) in &p.rows {
            let value = whole(measure.of(sums));
            if value == 0 {
                continue;
            }
            let mut frames = Vec::new();
            if profile.processes.len() > 1 {
                frames.push(extra.number(format!("{} (pid {})", p.command, p.pid)));
            }
            frames.extend(stack.frames.iter().rev().map(|f| *f as usize));
            if stack.frames.is_empty() {
                frames.push(extra.number("(no stack)".into()));
            }
            samples.push(frames);
            weights.push(value);
        }
    }
    let total = weights.iter().fold(0u64, |sum, w| sum.saturating_add(*w));
    let unit = if measure.unit() == "bytes" { "bytes" } else { "none" };
    json!({"type": "sampled", "name": title(measure, profile), "unit": unit, "startValue": 0, "endValue": total, "samples": samples, "weights": weights})
}
