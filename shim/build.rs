//! Link flags of the shared library.
fn main() {
    // Never unloaded (threads run in it), every symbol bound at load time (no lazy binding inside a hook), a name for other objects.
    // Our own functions are ours, also where a program exports one of the same name: what is handed out must be the hook.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    for arg in ["-Wl,-z,nodelete", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,-soname,libmemshim.so", "-Wl,--gc-sections"] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
