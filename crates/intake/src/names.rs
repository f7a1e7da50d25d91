//! The names of the tasks that have been read.

use std::collections::BTreeSet;

use crate::SpecProblem;
use crate::excerpt::quoted;
use crate::nearest::nearest;

/// Among more names than this, a guess takes longer than it is worth.
const MOST_GUESSES: usize = 10_000;

/// The names of the tasks that have been read.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeSet<String>);

impl Names {
    /// Whether another task can have this name.
    pub fn check_new(&self, name: &str) -> Result<(), SpecProblem> {
        check_name(name)?;
        if self.0.contains(name) {
            return Err(SpecProblem::NameTaken(name.to_owned()));
        }
        Ok(())
    }

    /// Whether an earlier task has this name.
    pub fn check_known(&self, name: &str) -> Result<(), SpecProblem> {
        check_name(name)?;
        if self.0.contains(name) {
            return Ok(());
        }
        let known = self.0.iter().map(String::as_str);
        let known = known.take_while(|_| self.0.len() <= MOST_GUESSES);
        let nearest = nearest(name, known).map(str::to_owned);
        Err(SpecProblem::UnknownName(quoted(name.as_bytes()), nearest))
    }

    /// Notes the name of a task, if it has one.
    pub fn insert(&mut self, name: Option<&String>) {
        self.0.extend(name.cloned());
    }
}

/// A name is what can be typed without quotes.
fn check_name(name: &str) -> Result<(), SpecProblem> {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || !name.chars().all(fits) {
        return Err(SpecProblem::Name(quoted(name.as_bytes())));
    }
    Ok(())
}
