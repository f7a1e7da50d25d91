//! The user and the command line of a process.

use std::collections::HashMap;

use packhorse_model::push_printable;
use packhorse_proc::ProcEntry;
use packhorse_trust::user_name;

use crate::{GpuProcess, ProcessMemory};

/// Looks processes up in `/proc`, and each of their users only once.
#[derive(Default)]
pub(crate) struct ProcessLookup {
    names: HashMap<u32, String>,
}

impl ProcessLookup {
    /// The processes that hold this memory, if it is known who does.
    pub(crate) fn processes(
        &mut self,
        held: Option<Vec<ProcessMemory>>,
    ) -> Option<Vec<GpuProcess>> {
        let held = held?.into_iter();
        Some(held.map(|held| self.process(held)).collect())
    }

    /// The process with its user and command line.
    fn process(&mut self, held: ProcessMemory) -> GpuProcess {
        let entry = ProcEntry::of(held.pid);
        GpuProcess {
            pid: held.pid,
            memory: held.memory,
            user: entry.owner().ok().map(|uid| self.name(uid)),
            command: command(&entry),
            draws: held.draws,
        }
    }

    fn name(&mut self, uid: u32) -> String {
        self.names
            .entry(uid)
            .or_insert_with(|| user_name(uid).unwrap_or_else(|| uid.to_string()))
            .clone()
    }
}

impl GpuProcess {
    /// Looks up the process that holds this memory.
    pub fn look_up(held: ProcessMemory) -> Self {
        ProcessLookup::default().process(held)
    }

    /// The name of its program, if we may see it.
    pub fn program(&self) -> Option<&str> {
        let path = self.command.as_deref()?.split(' ').next()?;
        path.rsplit('/').next()
    }
}

/// The command line, or the short name in brackets for a process that has none:
/// a zombie or a thread of the kernel.
fn command(entry: &ProcEntry) -> Option<String> {
    let line = printable(&entry.command_line().ok()?);
    if !line.is_empty() {
        return Some(line);
    }
    let name = entry.command_name().ok()?;
    Some(format!("[{}]", printable(&name)))
}

/// Other users choose these bytes, and they end up on a terminal. Zeros stand between words.
fn printable(bytes: &[u8]) -> String {
    let mut text = String::new();
    let words = bytes.split(|&byte| byte == 0);
    for (number, word) in words.enumerate() {
        if number > 0 {
            text.push(' ');
        }
        push_printable(&mut text, word);
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No process has such a number.
    const NOBODY: ProcessMemory = ProcessMemory { pid: u32::MAX, memory: None, draws: false };

    #[test]
    fn a_command_line_cannot_control_the_terminal() {
        assert_eq!(printable(b"python\0a b\0\x1b[2J\n\xff\0"), "python a b ␛[2J␊\u{fffd}");
    }

    #[test]
    fn users_have_names_or_numbers() {
        let mut lookup = ProcessLookup::default();
        assert_eq!(lookup.name(0), "root");
        assert_eq!(lookup.name(4_000_123_456), "4000123456");
    }

    #[test]
    fn a_process_that_has_gone_has_neither_user_nor_command() {
        let process = GpuProcess::look_up(NOBODY);
        assert_eq!(process.program(), None);
        assert_eq!((process.user, process.command), (None, None));
    }

    #[test]
    fn a_program_is_called_by_its_name_alone() {
        let program = |command: &str| {
            let command = Some(command.to_owned());
            let process = GpuProcess::look_up(NOBODY);
            let process = GpuProcess { command, ..process };
            process.program().map(str::to_owned)
        };
        let named = Some("python3".to_owned());
        assert_eq!(program("/usr/bin/python3 /home/ada/train.py"), named);
        assert_eq!(program("python3"), named);
    }
}
