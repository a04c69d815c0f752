//! Promises about what is known of CUPTI by heart: numbers of calls and places of fields. Held against the real headers where they are: in the nvidia
//! packages of the test's Python, in `CUDA_HOME`, or in the folders that `MEMSHIM_CUPTI_INCLUDE` names (`a:b` one set, sets apart by commas).

use super::*;
use std::collections::BTreeSet;
use std::fs;

fn source(path: &str) -> String {
    fs::read_to_string(support::root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Symbol and number of the calls that the shim asks CUPTI for.
fn ids() -> BTreeMap<String, u32> {
    let text = source("shim/src/cuda/cupti/calls.rs");
    let pairs = text.split("(\"").skip(1).filter_map(|p| p.split_once("\", "));
    pairs.filter_map(|(name, rest)| Some((name.to_owned(), rest.split(')').next()?.parse().ok()?))).collect()
}

#[test]
fn every_call_that_starts_work_is_asked_for_by_its_number() {
    let shapes =
        ["Copy", "Copy2d", "Copy3d", "CopyBatch", "Copy3dBatch", "Copy3dAttributes", "Set", "Set2d", "GraphLaunch", "Kernel", "KernelEx"];
    let table = source("shim/src/cuda/table.rs");
    let rows = table.lines().filter_map(|l| l.strip_prefix("    cu")?.strip_suffix(';'));
    let starts: BTreeSet<String> = rows
        .filter(|row| row.split([' ', '(']).any(|word| shapes.contains(&word)))
        .filter_map(|row| Some(format!("cu{}", row.split_once(':')?.0)))
        .collect();
    let ids = ids();
    assert_eq!(ids.keys().cloned().collect::<BTreeSet<_>>(), starts);
    let fake = source("tests/programs/cuda/cupti_ids.inc");
    let of_fake = fake.lines().filter_map(|l| l.strip_prefix("X(")?.strip_suffix(')')?.split_once(", "));
    assert_eq!(ids, of_fake.map(|(name, id)| (name.to_owned(), id.parse().expect("a number"))).collect());
}

/// Sets of folders that have all of these headers.
pub fn headers(files: &[&str]) -> Vec<Vec<PathBuf>> {
    let split = |set: &str| set.split(':').map(PathBuf::from).collect();
    let mut sets: Vec<Vec<PathBuf>> = std::env::var("MEMSHIM_CUPTI_INCLUDE").map_or(vec![], |all| all.split(',').map(split).collect());
    if let Some(home) = std::env::var_os("CUDA_HOME").map(PathBuf::from) {
        sets.push(vec![home.join("extras/CUPTI/include"), home.join("include")]);
    }
    let ask = "import nvidia; print('\\n'.join(nvidia.__path__))";
    let packages = support::python().and_then(|p| Command::new(p).args(["-c", ask]).output().ok()).map(|o| support::lossy(&o.stdout));
    for at in packages.iter().flat_map(|p| p.lines()).map(PathBuf::from) {
        sets.push(vec![at.join("cu13/include")]);
        sets.push(vec![at.join("cuda_cupti/include"), at.join("cuda_runtime/include")]);
    }
    let whole = |set: &Vec<PathBuf>| files.iter().all(|f| set.iter().any(|d| d.join(f).exists()));
    sets.retain(whole);
    sets
}

/// The newest type of a kind of record: the header names it above the kind.
fn type_of<'a>(header: &'a str, kind: &str, stem: &str) -> &'a str {
    let defines = |(at, _): &(usize, &str)| header[at + kind.len()..].trim_start().starts_with('=');
    let above = &header[..header.match_indices(kind).find(defines).expect("the kind").0];
    let at = above.rfind(stem).unwrap_or_else(|| panic!("{kind} has no {stem}"));
    let name = &above[at..];
    &name[..name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len())]
}

/// What the shim knows: kind → places of start, end, device, stream, correlation, bytes or name, node.
fn layouts() -> BTreeMap<String, Vec<usize>> {
    let text = source("shim/src/cuda/cupti/records.rs");
    let rows = text.lines().filter_map(|l| l.trim().strip_prefix("Layout { kind: ")?.strip_suffix(" },"));
    let place = |field: &str| field.rsplit(": ").next()?.parse().ok();
    rows.map(|row| (row.split(',').next().expect("a kind").to_owned(), row.split(", ").skip(1).filter_map(place).collect())).collect()
}

#[test]
fn fields_and_numbers_are_where_the_real_headers_have_them() {
    let test = "fields_and_numbers_are_where_the_real_headers_have_them";
    let sets = headers(&["cupti_activity.h", "cuda.h"]);
    if sets.is_empty() {
        return support::skip(test, "needs headers of CUPTI and CUDA (nvidia packages of Python, CUDA_HOME, or MEMSHIM_CUPTI_INCLUDE)");
    }
    for (i, set) in sets.iter().enumerate() {
        let of = |file: &str| {
            let path = set.iter().map(|d| d.join(file)).find(|p| p.exists()).unwrap_or_else(|| panic!("no {file} in {set:?}"));
            fs::read_to_string(path).expect("a header")
        };
        let numbers = of("cupti_driver_cbid.h");
        let known: BTreeMap<&str, u32> = numbers
            .lines()
            .filter_map(|l| l.trim().strip_prefix("CUPTI_DRIVER_TRACE_CBID_")?.trim_end_matches(',').split_once('='))
            .filter_map(|(name, id)| Some((name.trim(), id.trim().parse().ok()?)))
            .collect();
        for (name, id) in ids() {
            assert!(known.get(name.as_str()).is_none_or(|real| *real == id), "{name}: {id}, and {:?} in {set:?}", known.get(name.as_str()));
        }
        let header = of("cupti_activity.h");
        let fields = ["start", "end", "deviceId", "streamId", "correlationId", "bytes", "graphNodeId"];
        let program: String = [
            ("KERNEL", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "CUpti_ActivityKernel"),
            ("COPY", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUpti_ActivityMemcpy"),
            ("PEER", "CUPTI_ACTIVITY_KIND_MEMCPY2", "CUpti_ActivityMemcpyPtoP"),
            ("MEMSET", "CUPTI_ACTIVITY_KIND_MEMSET", "CUpti_ActivityMemset"),
        ]
        .iter()
        .flat_map(|(name, kind, stem)| {
            let of_type = type_of(&header, kind, stem);
            let offsets = fields.iter().map(move |f| if *name == "KERNEL" && *f == "bytes" { "name" } else { f });
            let offsets: Vec<String> = offsets.map(|f| format!("offsetof({of_type}, {f})")).collect();
            [format!("printf(\"{name}{}\\n\", {});\n", " %zu".repeat(fields.len()), offsets.join(", "))]
        })
        .collect();
        let (file, made) = (support::out_dir().join(format!("cupti_offsets{i}.c")), support::out_dir().join(format!("cupti_offsets{i}")));
        let call = "printf(\"CALL %zu\\n\", offsetof(CUpti_CallbackData, correlationId));";
        let includes = "#include <stddef.h>\n#include <stdio.h>\n#include <cupti_activity.h>\n#include <cupti_callbacks.h>\n";
        fs::write(&file, format!("{includes}int main(void) {{\n{program}{call}\nreturn 0; }}\n")).expect("a source");
        let mut compiler = Command::new("gcc");
        let built = compiler.args(set.iter().map(|d| format!("-I{}", d.display()))).arg("-w").arg(&file).arg("-o").arg(&made).output();
        let built = built.expect("gcc");
        assert!(built.status.success(), "{set:?}: {}", support::lossy(&built.stderr));
        let said = support::lossy(&Command::new(&made).output().expect("it runs").stdout);
        let (said, calls): (Vec<&str>, Vec<&str>) = said.lines().partition(|l| !l.starts_with("CALL"));
        let real: BTreeMap<String, Vec<usize>> = said
            .iter()
            .filter_map(|l| l.split_once(' '))
            .map(|(name, all)| (name.to_owned(), all.split(' ').map(|n| n.parse().expect("a place")).collect()))
            .collect();
        assert_eq!((layouts(), calls), (real, vec!["CALL 64"]), "{set:?}");
    }
}
