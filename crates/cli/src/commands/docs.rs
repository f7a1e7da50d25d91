//! What the program can tell about itself for shells and manuals.

use std::path::Path;

use clap::CommandFactory as _;
use packhorse_model::Exit;

use crate::args::Cli;
use crate::stdout::stdout;

/// `packhorse completions`
pub fn completions(shell: clap_complete::Shell) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "packhorse", &mut script);
    std::io::Write::write_all(&mut stdout(), &script)?;
    Ok(Exit::Success)
}

/// `packhorse man`
pub fn man(folder: &Path) -> anyhow::Result<Exit> {
    fs_err::create_dir_all(folder)?;
    clap_mangen::generate_to(Cli::command(), folder)?;
    Ok(Exit::Success)
}
