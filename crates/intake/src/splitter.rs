//! Bytes in pieces of any size → the pieces between separators.

/// What stays allocated when there is nothing to keep. More than a reader
/// pushes at a time, so that the usual stream never allocates twice.
const KEPT: usize = 256 << 10;

/// The longest piece there may be: 16 MiB are 128 times what a program can be given. Of a
/// longer one only so much is kept, and one byte more by which it is known.
pub const LONGEST: usize = 16 << 20;

/// The number of bytes beyond [`LONGEST`] after which no separator is expected.
const ENDLESS: u64 = 240 << 20;

#[derive(Debug, Default)]
pub(crate) struct Splitter {
    buffer: Vec<u8>,
    /// Everything before it has been handed out.
    start: usize,
    /// There is no separator between `start` and it: a line that arrives in a
    /// thousand chunks is still searched only once.
    searched: usize,
    /// How much of the piece that has no end yet was left out, since it is too long.
    left_out: u64,
    /// Whether any byte that was pushed is NUL: to look once at a whole push costs
    /// much less than to look at each line.
    has_nul: bool,
    ended: bool,
}

impl Splitter {
    pub fn push(&mut self, bytes: &[u8]) {
        self.ended = false;
        // Moves no more than has been handed out since the last move.
        if self.start > 0 && self.start >= self.held() {
            self.forget_handed_out();
        }
        self.buffer.extend_from_slice(bytes);
        self.has_nul |= memchr::memchr(0, bytes).is_some();
    }

    /// There is no more to come: what is left is the last piece.
    pub fn end(&mut self) {
        self.ended = true;
    }

    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether a piece may contain a NUL byte.
    pub fn has_nul(&self) -> bool {
        self.has_nul
    }

    /// Whether the piece that has no end yet is so long that none is to be expected.
    pub fn is_endless(&self) -> bool {
        self.left_out > ENDLESS
    }

    /// How many bytes wait for their separator, or to be asked for.
    pub fn held(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// The next piece without its separator.
    pub fn next(&mut self, separator: u8) -> Option<&[u8]> {
        if let Some(length) = memchr::memchr(separator, &self.buffer[self.searched..]) {
            let piece = self.start..self.searched + length;
            self.start = piece.end + 1;
            self.searched = self.start;
            self.left_out = 0;
            return Some(&self.buffer[piece]);
        }
        let kept = self.buffer.len().min(self.start + LONGEST + 1);
        self.left_out += (self.buffer.len() - kept) as u64;
        self.buffer.truncate(kept);
        self.searched = self.buffer.len();
        if self.ended && self.held() > 0 {
            let piece = self.start..self.buffer.len();
            self.start = piece.end;
            return Some(&self.buffer[piece]);
        }
        self.give_back();
        None
    }

    fn forget_handed_out(&mut self) {
        self.buffer.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
    }

    /// Returns what a giant line took.
    fn give_back(&mut self) {
        if self.held() == 0 || (self.buffer.capacity() > KEPT && self.held() < KEPT) {
            self.forget_handed_out();
            self.buffer.shrink_to(KEPT);
        }
    }

    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }
}
