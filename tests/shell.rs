//! Promises about shells and builds: many short processes, numbers of descriptors, limits.
mod support;
use support::Need;

promises! {
    scripts_keep_their_descriptors_and_jobs: "sh_descriptors.sh".exits(23);
    limits_and_bare_environments_are_as_ever: "sh_surroundings.sh";
    a_parallel_build_builds: "sh_build.sh".need(Need::Command("make")).need(Need::Command("cc")).any_files().limit(120);
    a_cpp_compiler_compiles: "sh_cpp.sh".need(Need::Command("g++")).any_files().limit(120);
    a_database_shell_keeps_its_database: "sh_sqlite.sh".need(Need::Command("sqlite3"));
    a_server_under_load_serves: "sh_redis.sh".need(Need::Command("redis-server")).need(Need::Command("redis-cli")).any_files();
    a_javascript_engine_runs_as_ever: "sh_node.sh".need(Need::Command("node"));
    a_repository_is_kept_as_ever: "sh_git.sh".need(Need::Command("git")).any_files();
    a_java_machine_runs_as_ever: "sh_java.sh".need(Need::Command("java")).need(Need::Command("javac")).any_files().exits(27).limit(120);
}
