//! What a batch system or an MPI launcher says in the environment.

use std::ffi::OsString;

/// Variables that hold the rank of a process, in the order in which they are asked; the shim has the same list.
pub const RANK_VARIABLES: [&str; 6] =
    ["SLURM_PROCID", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "MPI_LOCALRANKID"];
/// Variables that hold the id of a job, in the order in which they are asked.
pub const JOB_VARIABLES: [&str; 3] = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"];

/// An environment: a look-up by name. Tests pass a table.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

pub fn real_environment(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

pub fn rank(env: Lookup<'_>) -> Option<(&'static str, String)> {
    first(env, &RANK_VARIABLES).filter(|(_, v)| v.bytes().all(|b| b.is_ascii_digit()))
}

pub fn job_id(env: Lookup<'_>) -> Option<(&'static str, String)> {
    first(env, &JOB_VARIABLES)
}

fn first(env: Lookup<'_>, names: &[&'static str]) -> Option<(&'static str, String)> {
    names.iter().find_map(|&n| env(n).and_then(|v| v.into_string().ok()).filter(|v| !v.is_empty()).map(|v| (n, v)))
}

/// Memory that SLURM granted on this node, in bytes, and the variable that says so. SLURM counts in MiB.
pub fn slurm_memory(env: Lookup<'_>) -> Option<(&'static str, u64)> {
    let mib = |name: &str| env(name)?.to_str()?.parse::<u64>().ok();
    if let Some(n) = mib("SLURM_MEM_PER_NODE").filter(|&n| n > 0) {
        return Some(("SLURM_MEM_PER_NODE", n << 20));
    }
    let per_cpu = mib("SLURM_MEM_PER_CPU").filter(|&n| n > 0)?;
    let cpus = mib("SLURM_CPUS_ON_NODE")?;
    Some(("SLURM_MEM_PER_CPU", per_cpu.checked_mul(cpus)?.checked_mul(1 << 20)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slurm_memory_is_per_node_or_per_cpu_times_cpus() {
        let env = |n: &str| match n {
            "SLURM_MEM_PER_CPU" => Some("2048".into()),
            "SLURM_CPUS_ON_NODE" => Some("4".into()),
            _ => None,
        };
        assert_eq!(slurm_memory(&env), Some(("SLURM_MEM_PER_CPU", 8 << 30)));
        let env = |n: &str| (n == "SLURM_MEM_PER_NODE").then(|| "100".into());
        assert_eq!(slurm_memory(&env), Some(("SLURM_MEM_PER_NODE", 100 << 20)));
        assert_eq!(slurm_memory(&|_| None), None);
    }

    #[test]
    fn the_first_rank_variable_wins_and_must_be_a_number() {
        let env = |n: &str| match n {
            "PMI_RANK" => Some("3".into()),
            "PMIX_RANK" => Some("4".into()),
            _ => None,
        };
        assert_eq!(rank(&env), Some(("PMI_RANK", "3".into())));
        assert_eq!(rank(&|n: &str| (n == "PMI_RANK").then(|| "x".into())), None);
    }
}
