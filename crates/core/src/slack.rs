//! How much of a device may be given to others without delaying the one it is
//! kept for.
//!
//! Nobody knows who of those on a device ends first. Whichever of them have
//! ended when the holder fits, it has to fit just as well with the newcomer
//! there. So, over all subsets of those on the device whose end makes enough
//! room, the smallest room that is left over is what a newcomer may have.
//!
//! Several resources (share, memory) are each taken by themselves: a subset that
//! makes enough room of both makes enough of each, so what is left over of each
//! by the smallest measure is left over in every case.

/// Amounts that have no larger unit in common are counted in this part of their
/// sum, and what is lost by that is not given out.
const FINEST: u64 = 1 << 16;

/// With more units than this, it is faster to add up every subset of so `FEW`.
const COARSE: u64 = 1 << 10;
const FEW: usize = 8;

/// The smallest room that is left over when any of `items` have been given back
/// and there is enough for `need`, in a thing of which there is `size` and
/// `taken` is gone; or a little less than that. `None` if there never is enough.
pub(crate) fn left_over(
    size: u64,
    taken: u64,
    need: u64,
    items: impl Iterator<Item = u64> + Clone,
) -> Option<u64> {
    let lacking = taken.checked_add(need)?.saturating_sub(size);
    if lacking == 0 {
        return Some(size - taken - need);
    }
    let total = items.clone().try_fold(0, u64::checked_add)?;
    if lacking > total {
        return None;
    }
    let unit = items.clone().fold(0, gcd).max(total.div_ceil(FINEST));
    if total / unit > COARSE
        && let Some(room) = by_enumeration(lacking, items.clone())
    {
        return Some(room);
    }
    // A sum of items is no less than its whole units, and at most this more.
    let rest: u64 = items.clone().map(|item| item % unit).sum();
    let mut sums = Sums::new(total / unit);
    items.for_each(|item| sums.add(item / unit));
    let sum = sums.first_from(lacking.saturating_sub(rest).div_ceil(unit))?;
    Some((sum * unit).saturating_sub(lacking))
}

/// The smallest room that the sum of some of `items` leaves beyond `lacking`,
/// found by making all of those sums; `None` if there are too many.
fn by_enumeration(lacking: u64, items: impl Iterator<Item = u64>) -> Option<u64> {
    let mut sums = [0; 1 << FEW];
    let mut len = 1;
    for item in items {
        for index in 0..len {
            *sums.get_mut(len + index)? = sums[index] + item;
        }
        len *= 2;
    }
    let rooms = sums[..len].iter().filter_map(|sum| sum.checked_sub(lacking));
    rooms.min()
}

fn gcd(one: u64, other: u64) -> u64 {
    let (mut one, mut other) = (one, other);
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// Which sums some of the items make: one bit each.
struct Sums {
    words: Vec<u64>,
}

impl Sums {
    /// The sum of nothing, with room for sums up to `most`.
    #[expect(clippy::cast_possible_truncation, reason = "no more than FINEST")]
    fn new(most: u64) -> Self {
        let mut words = vec![0; most as usize / 64 + 1];
        words[0] = 1;
        Self { words }
    }

    /// Adds an item to some of the sums that there are.
    #[expect(clippy::cast_possible_truncation, reason = "no more than FINEST")]
    fn add(&mut self, item: u64) {
        let (skipped, bits) = (item as usize / 64, item % 64);
        // From above, so that no word is read after it was changed.
        for index in (skipped..self.words.len()).rev() {
            let low = self.words[index - skipped] << bits;
            let carried = match (index - skipped).checked_sub(1) {
                Some(below) if bits > 0 => self.words[below] >> (64 - bits),
                _ => 0,
            };
            self.words[index] |= low | carried;
        }
    }

    /// The first sum that is not below `least`.
    #[expect(clippy::cast_possible_truncation, reason = "no more than FINEST")]
    fn first_from(&self, least: u64) -> Option<u64> {
        let first = least as usize / 64;
        let mut word = self.words.get(first)? >> (least % 64) << (least % 64);
        let mut index = first;
        while word == 0 {
            index += 1;
            word = *self.words.get(index)?;
        }
        Some(index as u64 * 64 + u64::from(word.trailing_zeros()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition.
    fn slow(size: u64, need: u64, items: &[u64]) -> Option<u64> {
        let taken: u64 = items.iter().sum();
        let rooms = (0..1_u32 << items.len()).filter_map(|subset| {
            let freed = items.iter().enumerate();
            let freed = freed.filter(|&(index, _)| subset & (1 << index) != 0);
            let freed: u64 = freed.map(|(_, item)| item).sum();
            (size - taken + freed).checked_sub(need)
        });
        rooms.min()
    }

    #[test]
    fn it_is_the_smallest_over_all_subsets() {
        let mut random = 7_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(11);
            (random >> 33) % below
        };
        for _ in 0..2000 {
            let unit = 1 + next(5) * 100;
            let items: Vec<u64> = (0..next(9)).map(|_| next(80) * unit).collect();
            let size = items.iter().sum::<u64>() + next(200) * unit;
            let need = next(size + 1);
            let fast = left_over(size, items.iter().sum(), need, items.iter().copied());
            assert_eq!(fast, slow(size, need, &items), "{items:?} {size} {need}");
            let odd: Vec<u64> = items.iter().take(FEW).map(|item| item * 1009 + 1).collect();
            let size = odd.iter().sum::<u64>() + next(50_000);
            let need = next(size + 1);
            let fast = left_over(size, odd.iter().sum(), need, odd.iter().copied());
            assert_eq!(fast, slow(size, need, &odd), "{odd:?} {size} {need}");
        }
    }

    #[test]
    fn of_odd_amounts_a_little_less_is_given_out_but_never_more() {
        let mut random = 3_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(11);
            (random >> 11) % below
        };
        let mut given = 0;
        for _ in 0..100 {
            let items: Vec<u64> = (0..9).map(|_| next(20 << 30)).collect();
            let taken: u64 = items.iter().sum();
            let size = taken + next(5 << 30);
            let need = next(size);
            let fast = left_over(size, taken, need, items.iter().copied()).unwrap();
            let slow = slow(size, need, &items).unwrap();
            assert!(fast <= slow, "{items:?} {size} {need}");
            let lost = 9 * (taken / FINEST + 1);
            assert!(fast + lost >= slow || fast == 0, "{fast} {slow} {lost}");
            given += u32::from(fast > 0);
        }
        assert!(given > 90, "{given}");
    }

    #[test]
    fn what_others_hold_never_goes() {
        assert_eq!(left_over(10, 9, 6, [4].into_iter()), None);
        assert_eq!(left_over(10, 9, 6, [5].into_iter()), Some(0));
        assert_eq!(left_over(10, 20, 6, [].into_iter()), None);
        assert_eq!(left_over(10, u64::MAX, 6, [u64::MAX].into_iter()), None);
    }
}
