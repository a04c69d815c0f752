//! Triton: `TRITON_PRINT_AUTOTUNING=1`, in one line or, since 3.3, in four.
//!
//! ```text
//! Triton autotuning for function matmul finished after 1.23s; best config selected: BLOCK: 64;
//! Triton autotuning for function matmul,⏎with key as (512, 'torch.float32'),⏎finished after 1.23s,⏎best config selected: BLOCK: 64;
//! ```

use super::{Notice, between, nanoseconds};

/// The function being tuned.
#[derive(Default)]
pub struct Triton(Option<Notice>);

impl Triton {
    pub fn read(&mut self, line: &str, t: u64) -> Option<Notice> {
        if let Some((_, rest)) = line.split_once("Triton autotuning for function ") {
            let name = rest.split([' ', ',']).next().unwrap_or("").to_owned();
            self.0 = Some(Notice { t, by: "triton", function: name, ..Notice::default() });
        }
        let notice = self.0.as_mut()?;
        if let Some(key) = line.split_once("with key as ").map(|(_, key)| key.trim().trim_end_matches(',')) {
            let key = key.strip_prefix('(').and_then(|k| k.strip_suffix(')')).unwrap_or(key);
            notice.signature = key.split(',').map(|k| k.trim().to_owned()).filter(|k| !k.is_empty()).collect();
        }
        if let Some(seconds) = between(line, "finished after ", "s") {
            notice.ns = nanoseconds(seconds);
        }
        if line.contains("best config selected") { self.0.take() } else { None }
    }

    pub fn end(&mut self) -> Option<Notice> {
        self.0.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let one = "Triton autotuning for function matmul finished after 1.25s; best config selected: BLOCK: 64;";
        let four =
            "Triton autotuning for function matmul,\nwith key as (512, 'f32'),\nfinished after 1.25s,\nbest config selected: BLOCK: 64;";
        for (text, signature) in [(one, vec![]), (four, vec!["512", "'f32'"])] {
            let mut triton = Triton::default();
            let all: Vec<Notice> = text.lines().filter_map(|l| triton.read(l, 1)).collect();
            assert_eq!(all.len(), 1, "{text}");
            assert_eq!(
                (&*all[0].function, all[0].ns, &all[0].signature),
                ("matmul", Some(1_250_000_000), &signature.iter().map(|s| s.to_string()).collect())
            );
        }
    }
}
