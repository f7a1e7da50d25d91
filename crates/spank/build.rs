//! Finds out for which Slurm the plugin is built: Slurm loads no other.

use std::path::PathBuf;

/// A header file, instead of the machine's.
const HEADER: &str = "PACKHORSE_SLURM_HEADER";

/// A version such as 24.11.5, instead of a header file.
const VERSION: &str = "PACKHORSE_SLURM_VERSION";

fn main() {
    println!("cargo::rerun-if-env-changed={HEADER}");
    println!("cargo::rerun-if-env-changed={VERSION}");
    let named = std::env::var(VERSION).ok();
    let named = named.filter(|version| !version.is_empty());
    if let Some(version) = named {
        let number = number(&version)
            .unwrap_or_else(|| panic!("{VERSION}={version} is no version such as 24.11.5"));
        println!("cargo::rustc-env=PACKHORSE_BUILT_FOR={number}");
        return;
    }
    let given = std::env::var_os(HEADER).map(PathBuf::from);
    let usual =
        ["slurm_version.h", "slurm.h"].map(|name| PathBuf::from("/usr/include/slurm").join(name));
    let headers = given.map_or_else(|| usual.to_vec(), |given| vec![given]);
    let mut number = None;
    for header in &headers {
        println!("cargo::rerun-if-changed={}", header.display());
        number = number.or_else(|| version(&fs_err::read_to_string(header).ok()?));
    }
    if number.is_none() {
        println!(
            "cargo::warning=no SLURM_VERSION_NUMBER in {headers:?}: no Slurm will load this plugin \
             (install Slurm's headers, or name slurm_version.h in {HEADER})"
        );
    }
    println!("cargo::rustc-env=PACKHORSE_BUILT_FOR={}", number.unwrap_or(0));
}

/// 0x180b05 for 24.11.5.
fn number(version: &str) -> Option<u32> {
    let mut numbers = version.split(['.', '-']).map(|part| part.parse::<u32>().ok());
    let (major, minor) = (numbers.next()??, numbers.next()??);
    let micro = numbers.next().flatten().unwrap_or(0);
    (major < 256 && minor < 256 && micro < 256).then_some(major << 16 | minor << 8 | micro)
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
