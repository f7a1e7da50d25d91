use std::num::NonZeroU32;

use super::row::Row;

/// When a row's turn is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPlace {
    /// Its batch: all of an earlier one go first.
    pub batch: u32,
    /// How many rows go before it, in all batches.
    pub number: u32,
}

/// The place of every row: batches of `size` in the order of the file, within a
/// batch by priority, equal ones in the order of the file.
pub fn places(rows: &[Row], size: NonZeroU32) -> Vec<BatchPlace> {
    let size = usize::try_from(size.get()).unwrap_or(usize::MAX);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&index| (index / size, rows[index].spec.priority));
    let counted = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let mut places: Vec<BatchPlace> = (0..rows.len())
        .map(|index| BatchPlace {
            batch: counted(index / size),
            number: 0,
        })
        .collect();
    for (number, index) in order.into_iter().enumerate() {
        places[index].number = counted(number);
    }
    places
}
