use std::io::{self, StdoutLock, Write};

use packhorse_model::TerminalFilter;

use crate::terminal;

/// Standard output of a command. A terminal gets nothing but text and colours, whatever is
/// in what is printed; a file or a pipe gets the bytes as they are.
pub struct Stdout {
    lock: StdoutLock<'static>,
    /// For a terminal.
    filter: Option<TerminalFilter>,
    filtered: Vec<u8>,
}

/// The only way to standard output, but for the view of a run.
pub fn stdout() -> Stdout {
    let mut stdout = raw_stdout();
    stdout.filter = terminal::is_stdout().then(TerminalFilter::default);
    stdout
}

/// Standard output without a filter, for `logs --raw`.
pub fn raw_stdout() -> Stdout {
    #[expect(clippy::disallowed_methods, reason = "this is where it is wrapped")]
    let stdout = io::stdout();
    Stdout { lock: stdout.lock(), filter: None, filtered: Vec::new() }
}

impl Stdout {
    /// Prints what was kept back, since its end had not come.
    pub fn finish(&mut self) -> io::Result<()> {
        if let Some(filter) = &mut self.filter {
            self.filtered.clear();
            filter.finish(&mut self.filtered);
            self.lock.write_all(&self.filtered)?;
        }
        self.lock.flush()
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(filter) = &mut self.filter else { return self.lock.write(bytes) };
        self.filtered.clear();
        filter.push(bytes, &mut self.filtered);
        self.lock.write_all(&self.filtered)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.lock.flush()
    }
}

impl Drop for Stdout {
    fn drop(&mut self) {
        // The error cannot be reported any more.
        let _ = self.finish();
    }
}
