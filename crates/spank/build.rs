//! Finds out for which Slurm the plugin is built: Slurm loads no other.

use std::path::PathBuf;

/// A header file, instead of the machine's.
const HEADER: &str = "PACKHORSE_SLURM_HEADER";

fn main() {
    println!("cargo::rerun-if-env-changed={HEADER}");
    let given = std::env::var_os(HEADER).map(PathBuf::from);
    let usual =
        ["slurm_version.h", "slurm.h"].map(|name| PathBuf::from("/usr/include/slurm").join(name));
    let headers = given.map_or_else(|| usual.to_vec(), |given| vec![given]);
    let mut number = None;
    for header in &headers {
        println!("cargo::rerun-if-changed={}", header.display());
        number = number.or_else(|| version(&std::fs::read_to_string(header).ok()?));
    }
    if number.is_none() {
        println!(
            "cargo::warning=no SLURM_VERSION_NUMBER in {headers:?}: no Slurm will load this plugin \
             (install Slurm's headers, or name slurm_version.h in {HEADER})"
        );
    }
    println!(
        "cargo::rustc-env=PACKHORSE_SLURM_VERSION={}",
        number.unwrap_or(0)
    );
}

/// The number in a line `#define SLURM_VERSION_NUMBER 0x160508`.
fn version(header: &str) -> Option<u32> {
    header.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let is_it = words.next() == Some("#define") && words.next() == Some("SLURM_VERSION_NUMBER");
        let number = words.next().filter(|_| is_it)?;
        u32::from_str_radix(number.strip_prefix("0x")?, 16).ok()
    })
}
