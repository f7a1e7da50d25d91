//! The numbers below n in an order that a seed decides, computed one by one.
//!
//! A Feistel network over a rectangle of about √n × √n cells: each round
//! shifts one coordinate by a hash of the other, which is reversible whatever
//! the hash is, so no number comes twice. The rectangle is slightly larger than
//! n; a result outside goes round again until it falls inside, which it must,
//! since it started there.
//!
//! Few numbers make a poor rectangle: of the 120 orders of 5 things such a
//! network reaches some far more often than others. So up to [`SMALL`] the
//! order is drawn properly into a table of constant size.

/// The most numbers that are shuffled in a table.
const SMALL: u128 = 256;

/// Enough that neighbours end up as far apart as anything else.
const ROUNDS: usize = 8;

#[derive(Clone, Debug)]
pub(super) enum Permutation {
    Table(Vec<u8>),
    Feistel {
        len: u128,
        /// The rectangle's last row and column. There may be 2^64 of each, so
        /// the numbers of them might not fit.
        last_row: u64,
        last_column: u64,
        keys: [u64; ROUNDS],
    },
}

impl Permutation {
    /// An order of the numbers below `len`. The same seed gives the same one
    /// everywhere: there is nothing in it but arithmetic of whole numbers.
    pub fn new(len: u128, seed: u64) -> Self {
        let mut random = SplitMix64(mix(seed));
        if len <= SMALL {
            let mut table: Vec<u8> = (0..=u8::MAX).take_while(|&i| u128::from(i) < len).collect();
            for last in (1..table.len()).rev() {
                table.swap(last, random.below(last + 1));
            }
            return Self::Table(table);
        }
        let root = len.isqrt();
        let rows = if root * root < len { root + 1 } else { root };
        let columns = len.div_ceil(rows);
        Self::Feistel {
            len,
            last_row: u64::try_from(rows - 1).unwrap_or(u64::MAX),
            last_column: u64::try_from(columns - 1).unwrap_or(u64::MAX),
            keys: std::array::from_fn(|_| random.next()),
        }
    }

    /// The number at `index`, which must be less than the length.
    pub fn get(&self, index: u128) -> u128 {
        match self {
            Self::Table(table) => {
                let at = usize::try_from(index).ok().and_then(|i| table.get(i));
                at.map_or(index, |&number| u128::from(number))
            }
            Self::Feistel { len, last_row, last_column, keys } => {
                let mut number = index.min(len - 1);
                loop {
                    number = round_trip(number, *last_row, *last_column, keys);
                    if number < *len {
                        return number;
                    }
                }
            }
        }
    }
}

fn round_trip(number: u128, last_row: u64, last_column: u64, keys: &[u64; ROUNDS]) -> u128 {
    let columns = u128::from(last_column) + 1;
    let (row, column) = divide(number, columns);
    let mut row = u64::try_from(row).unwrap_or(last_row);
    let mut column = u64::try_from(column).unwrap_or(last_column);
    for pair in keys.chunks_exact(2) {
        row = shift(row, hash(column ^ pair[0]), last_row);
        column = shift(column, hash(row ^ pair[1]), last_column);
    }
    u128::from(row) * columns + u128::from(column)
}

/// Quotient and remainder; a division of 128 bits is slow, and rarely needed.
pub(super) fn divide(number: u128, by: u128) -> (u128, u128) {
    match (u64::try_from(number), u64::try_from(by)) {
        (Ok(number), Ok(by)) => (u128::from(number / by), u128::from(number % by)),
        _ => (number / by, number % by),
    }
}

/// `at` moved on, and round past `last`, by as large a part of the whole as
/// `hash` is of 2^64.
fn shift(at: u64, hash: u64, last: u64) -> u64 {
    let (hash, size) = (u128::from(hash), u128::from(last) + 1);
    let by = ((hash * size) >> 64) as u64;
    let room = last - at;
    if by <= room { at + by } else { by - room - 1 }
}

/// A cheaper [`mix`]: only the high bits need to be good, as [`shift`] looks at
/// these.
fn hash(number: u64) -> u64 {
    let z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (z ^ (z >> 32)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// Every bit of the result depends on every bit of the number.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Numbers out of a seed: a counter, hashed.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Each number below `bound` as often as any other.
    fn below(&mut self, bound: usize) -> usize {
        let bound = bound as u64;
        // What is left over of 2^64 would favour the small numbers.
        let unfair = u64::MAX - u64::MAX % bound;
        loop {
            let number = self.next();
            if number < unfair {
                return usize::try_from(number % bound).unwrap_or(0);
            }
        }
    }
}

#[cfg(test)]
mod tests;
