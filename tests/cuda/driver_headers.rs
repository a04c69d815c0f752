//! Promises about the ABIs of hooked functions: which there are from which version on, and how many arguments each takes. Held against NVIDIA's
//! `cudaTypedefs.h` where it is, as `cupti_headers` finds headers.

use super::*;
use std::fs;

/// Name, version and whose default stream, as in `PFN_cuMemAlloc_v3020`, `PFN_cuMemcpy_v7000_ptds`.
type Abi = (String, u32, bool);

/// Arguments that are on the stack, also where there are few: a structure by value that no register holds.
const BY_STACK: &str = "CUipcMemHandle";

/// The header's functions, with their arguments.
fn typedefs(header: &str) -> BTreeMap<Abi, Vec<&str>> {
    let one = |line: &str| -> Option<(Abi, usize, usize)> {
        let at = line.find("CUDAAPI *PFN_")? + "CUDAAPI *PFN_".len();
        let begins = at + line[at..].find(")(")?;
        let (name, version) = line[at..begins].rsplit_once("_v")?;
        let (number, per_thread) = version.split_once('_').map_or((version, false), |(number, _)| (number, true));
        Some(((name.to_owned(), number.parse().ok()?, per_thread), begins + 2, line.rfind(");")?))
    };
    header
        .lines()
        .filter_map(|line| {
            let (abi, from, to) = one(line)?;
            Some((abi, line[from..to].split(',').map(str::trim).filter(|a| *a != "void").collect()))
        })
        .collect()
}

fn newest(typedefs: &BTreeMap<Abi, Vec<&str>>) -> u32 {
    typedefs.keys().map(|(_, version, _)| *version).max().unwrap_or(0)
}

/// The table's lines: which ABI, and whether arguments are on the stack.
fn table() -> BTreeMap<Abi, bool> {
    let text = fs::read_to_string(support::root().join("shim/src/cuda/table.rs")).expect("the table");
    let rows = text.lines().filter_map(|l| l.strip_prefix("    cu")?.strip_suffix(';')?.split_once(": "));
    let rows = rows.map(|(_, rest)| rest.split(' ').collect::<Vec<_>>()).filter(|w| w[4] != "Cupti");
    rows.map(|w| ((w[0].to_owned(), w[1].parse().expect("a version"), w[2] == "PerThread"), w[3] == "wide")).collect()
}

#[test]
fn every_abi_of_a_hooked_function_is_in_the_table_with_its_arguments() {
    let test = "every_abi_of_a_hooked_function_is_in_the_table_with_its_arguments";
    let sets = cupti_headers::headers(&["cudaTypedefs.h"]);
    let all = sets.iter().flatten().map(|d| d.join("cudaTypedefs.h")).filter_map(|path| Some((fs::read_to_string(&path).ok()?, path)));
    let Some((header, path)) = all.max_by_key(|(header, _)| newest(&typedefs(header))) else {
        return support::skip(test, "needs NVIDIA's cudaTypedefs.h (nvidia packages of Python, or CUDA_HOME)");
    };
    let (typedefs, table) = (typedefs(&header), table());
    let by_stack = |arguments: &[&str]| arguments.len() > 6 || arguments.iter().any(|a| a.starts_with(BY_STACK));
    let of_hooked = typedefs.iter().filter(|((name, ..), _)| table.keys().any(|(hooked, ..)| hooked == name));
    let real: BTreeMap<Abi, bool> = of_hooked.map(|(abi, arguments)| (abi.clone(), by_stack(arguments))).collect();
    assert!(real.len() > 200, "{}: {} ABIs", path.display(), real.len());
    let differ: Vec<_> = real.iter().filter(|(abi, wide)| table.get(*abi) != Some(*wide)).collect();
    assert!(differ.is_empty(), "{}: not so in the table (ABI, on the stack): {differ:?}", path.display());
    let unknown: Vec<_> = table.keys().filter(|abi| abi.1 <= newest(&typedefs) && !real.contains_key(*abi)).collect();
    assert!(unknown.is_empty(), "{}: no such ABI: {unknown:?}", path.display());
}
