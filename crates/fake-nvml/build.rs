//! Gives the library the name under which programs ask the loader for NVML.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-soname,libnvidia-ml.so.1");
}
