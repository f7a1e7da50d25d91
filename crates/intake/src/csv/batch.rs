use std::num::NonZeroU32;

use super::row::Row;

/// How many rows go before each: batches of `size` in the order of the file, within a
/// batch by priority, equal ones in the order of the file.
pub fn turns(rows: &[Row], size: NonZeroU32) -> Vec<u64> {
    let size = usize::try_from(size.get()).unwrap_or(usize::MAX);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&index| (index / size, rows[index].spec.priority));
    let mut turns = vec![0; rows.len()];
    for (turn, index) in (0..).zip(order) {
        turns[index] = turn;
    }
    turns
}
