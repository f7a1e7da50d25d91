//! Runs programs in turns, so that a slow moment of the machine affects all.

use anyhow::{Context, Result};

/// A program to measure, in the first `rounds` rounds.
pub struct Contestant<'a, T> {
    pub name: String,
    pub rounds: usize,
    run: Box<dyn Fn() -> Result<T> + 'a>,
}

impl<'a, T> Contestant<'a, T> {
    pub fn new(name: impl Into<String>, rounds: usize, run: impl Fn() -> Result<T> + 'a) -> Self {
        Self { name: name.into(), rounds, run: Box::new(run) }
    }
}

/// Runs every contestant once per round, beginning with another one in every round. Returns
/// a list for each contestant with a value for each of its rounds.
pub fn interleave<T>(contestants: &[Contestant<T>]) -> Result<Vec<Vec<T>>> {
    let rounds = contestants.iter().map(|it| it.rounds).max().unwrap_or(0);
    let mut values: Vec<Vec<T>> = contestants.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for turn in 0..contestants.len() {
            let index = (round + turn) % contestants.len();
            let contestant = &contestants[index];
            if round < contestant.rounds {
                let value = (contestant.run)().with_context(|| contestant.name.clone())?;
                values[index].push(value);
            }
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn contestants_take_turns_in_a_rotated_order() {
        let order = RefCell::new(String::new());
        let contestant = |name: char, rounds| {
            let order = &order;
            Contestant::new(name, rounds, move || {
                order.borrow_mut().push(name);
                Ok(order.borrow().len())
            })
        };
        let all = [contestant('a', 3), contestant('b', 3), contestant('c', 1)];
        let values = interleave(&all).unwrap();
        assert_eq!(*order.borrow(), "abcbaab");
        assert_eq!(values, [vec![1, 5, 6], vec![2, 4, 7], vec![3]]);
    }

    #[test]
    fn failing_contestant_is_named() {
        let fails = || anyhow::bail!("it broke");
        let all: [Contestant<()>; 1] = [Contestant::new("us", 1, fails)];
        let error = interleave(&all).unwrap_err();
        assert_eq!(format!("{error:#}"), "us: it broke");
    }
}
