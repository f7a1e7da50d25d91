use super::grid::Sweep;

/// The commands of a sweep, one after the other.
///
/// Of each, only what differs from the one before is computed: in a grid that
/// is most often the value of the last parameter.
#[derive(Clone, Debug)]
pub struct SweepCommands<'a> {
    sweep: &'a Sweep,
    next: u128,
    /// Where on each axis we are.
    digits: Vec<u128>,
    line: Vec<u8>,
    /// Where in the line each part of the template begins.
    starts: Vec<usize>,
}

impl<'a> SweepCommands<'a> {
    pub(super) fn new(sweep: &'a Sweep) -> Self {
        Self {
            sweep,
            next: 0,
            digits: vec![0; sweep.axes.len()],
            line: Vec::new(),
            starts: vec![0; sweep.parts.len()],
        }
    }

    /// The next command, without copying it.
    pub fn advance(&mut self) -> Option<&[u8]> {
        if self.next >= self.sweep.len() {
            return None;
        }
        let mut changed = self.move_on();
        if self.next == 0 {
            changed = 0;
        }
        self.next += 1;

        let unchanged = self.starts.get(changed).copied();
        self.line.truncate(unchanged.unwrap_or(self.line.len()));
        for (index, part) in self.sweep.parts.iter().enumerate().skip(changed) {
            self.starts[index] = self.line.len();
            self.sweep.push_part(part, &self.digits, &mut self.line);
        }
        Some(&self.line)
    }

    /// Sets the digits of the command `next`. Returns the first part of the
    /// template that looks different now.
    fn move_on(&mut self) -> usize {
        let Self { sweep, digits, .. } = self;
        let mut changed = sweep.parts.len();
        if sweep.permutation.is_some() {
            sweep.for_each_digit(self.next, |axis, digit| {
                if digits[axis] != digit {
                    digits[axis] = digit;
                    changed = changed.min(sweep.first_part[axis]);
                }
            });
        } else if self.next > 0 {
            // One more, with carry, as an odometer does it.
            for (axis, digit) in digits.iter_mut().enumerate().rev() {
                changed = changed.min(sweep.first_part[axis]);
                *digit += 1;
                if *digit < sweep.axes[axis].len {
                    break;
                }
                *digit = 0;
            }
        }
        changed
    }
}

impl Iterator for SweepCommands<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().map(<[u8]>::to_vec)
    }
}
