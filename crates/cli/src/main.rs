//! The binary `packhorse`.

fn main() -> std::process::ExitCode {
    packhorse_cli::main().into()
}
