//! The parts of the machine whose tests are left out, and how many tests those are.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::Path;

use anyhow::{Error, Result};
use packhorse_test_parts::{Part, SKIP, SKIPPED, parse_parts};
use tempfile::NamedTempFile;

use crate::python::PythonTests;

/// The parts that `PACKHORSE_SKIP` names.
pub fn named() -> Result<Vec<Part>> {
    parse_parts(&env::var(SKIP).unwrap_or_default()).map_err(Error::msg)
}

/// What is left out, and why.
pub struct LeftOut {
    parts: Vec<(Part, String)>,
    /// Why the tests of the Python package are left out as a whole, if they are.
    pub package: Option<String>,
    /// The value of `PACKHORSE_SKIP` for tests.
    names: String,
    /// Where tests write that they were left out.
    record: NamedTempFile,
}

impl LeftOut {
    /// Finds the parts that are missing; those that are named are left out anyway.
    pub fn find(named: &[Part]) -> Result<Self> {
        let why = |part: Part| {
            if named.contains(&part) { Some(format!("{SKIP} names it")) } else { part.missing() }
        };
        let parts = Part::ALL.into_iter().filter_map(|part| Some((part, why(part)?)));
        let parts: Vec<_> = parts.collect();
        let told: Vec<&str> = parts.iter().map(|(part, _)| part.name()).collect();
        let package = match parts.iter().find(|(part, _)| *part == Part::Python) {
            Some((_, why)) => Some(why.clone()),
            None => match PythonTests::find() {
                Ok(tests) if tests.absent().is_empty() => None,
                Ok(_) => Some("its environments could not be made".to_owned()),
                Err(_) => Some("no Python 3.10 or newer".to_owned()),
            },
        };
        Ok(Self { names: told.join(","), parts, package, record: NamedTempFile::new()? })
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.package.is_none()
    }

    /// The environment variables for tests.
    pub fn variables(&self) -> [(&str, &Path); 2] {
        [(SKIP, Path::new(&self.names)), (SKIPPED, self.record.path())]
    }

    /// What is said before the tests run.
    pub fn lines(&self) -> Vec<String> {
        self.lines_with(|part, why| format!("tests of {}: {why}", part.name()))
    }

    /// What is said after it: how many were left out.
    pub fn counted(&self) -> Result<Vec<String>> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for (part, _) in self.recorded()? {
            *counts.entry(part).or_default() += 1;
        }
        Ok(self.lines_with(|part, why| {
            let count = counts.get(part.name()).copied().unwrap_or_default();
            format!("{count} tests of {}: {why}", part.name())
        }))
    }

    /// How many tests of these programs have said that they were left out.
    pub fn count_of<'a>(&self, programs: impl Iterator<Item = &'a str>) -> Result<usize> {
        let recorded = self.recorded()?.into_iter();
        let programs: BTreeSet<&str> = programs.collect();
        let program = |test: &str| test.split(' ').next().is_some_and(|it| programs.contains(it));
        Ok(recorded.filter(|(_, test)| program(test)).count())
    }

    /// The tests that have said that they were left out: the part, and the program with the
    /// name. One that starts itself again may have said it twice.
    fn recorded(&self) -> Result<BTreeSet<(String, String)>> {
        let text = fs_err::read_to_string(self.record.path())?;
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        Ok(lines.map(|(part, test)| (part.to_owned(), test.to_owned())).collect())
    }

    fn lines_with(&self, line: impl Fn(Part, &str) -> String) -> Vec<String> {
        let parts = self.parts.iter().map(|(part, why)| line(*part, why));
        let package = self.package.iter().map(|why| format!("all of python/tests: {why}"));
        parts.chain(package).collect()
    }
}
