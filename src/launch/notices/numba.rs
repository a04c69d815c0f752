//! Numba: `NUMBA_DEBUG_CACHE=1` says which compiled functions are saved. Functions without `cache=True` say nothing.
//!
//! ```text
//! [cache] data saved to '/w/__pycache__/model.step-12.py311.1.nbc'
//! ```

use super::Notice;

pub fn read(line: &str, t: u64) -> Option<Notice> {
    let path = line.split_once("[cache] data saved to ")?.1.trim().trim_matches('\'');
    let file = path.rsplit('/').next()?;
    // module.function-line.pyXY.n.nbc
    let function = file.rsplit_once('-').map_or(file, |(name, _)| name);
    Some(Notice { t, by: "numba", function: function.to_owned(), ..Notice::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_function_was_compiled() {
        let notice = read("[cache] data saved to '/w/__pycache__/my-model.step-12.py311.1.nbc'", 3).unwrap();
        assert_eq!((notice.by, &*notice.function, notice.t), ("numba", "my-model.step", 3));
        assert_eq!(read("[cache] index saved to '/w/x.nbi'", 3), None);
    }
}
