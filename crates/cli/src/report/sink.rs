use std::io::{self, Write};

use rustix::fd::{AsFd, BorrowedFd};

/// Standard output, a turn of the loop at a time.
///
/// What cannot be written is dropped, and said once on standard error: a closed
/// pipe or a full disk must not stop a run.
pub struct Sink {
    buffer: Vec<u8>,
    output: Box<dyn Output>,
    broken: bool,
}

trait Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;
}

impl<W: Write> Output for W {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)?;
        self.flush()
    }
}

/// More than this is not collected before it is written.
const ENOUGH: usize = 64 * 1024;

impl Sink {
    /// Writes to standard output.
    pub fn stdout() -> Self {
        Self {
            buffer: Vec::new(),
            output: Box::new(Raw(rustix::stdio::stdout())),
            broken: false,
        }
    }

    /// Where to put what comes next.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        if self.buffer.len() > ENOUGH {
            self.flush();
        }
        &mut self.buffer
    }

    /// Adds a line.
    pub fn line(&mut self, text: impl std::fmt::Display) {
        // Writing to a Vec cannot fail.
        let _ = writeln!(self.buffer(), "{text}");
    }

    /// Writes what has been collected.
    pub fn flush(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        if !self.broken
            && let Err(error) = self.output.write(&self.buffer)
        {
            self.broken = true;
            // If standard error is gone as well there is nobody to tell.
            let _ = writeln!(
                io::stderr(),
                "warning: cannot write to standard output ({error}): the run goes on without it"
            );
        }
        self.buffer.clear();
    }
}

/// A descriptor without the standard library's line buffering.
struct Raw<'a>(BorrowedFd<'a>);

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self.0.as_fd(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
