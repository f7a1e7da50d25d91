//! A sweep as a source of tasks.

use packhorse_intake::Colour;
use packhorse_intake::sweep::{Sweep, SweepError, SweepLanguage};
use packhorse_model::{Command, SweepSpec, TaskSpec};

use crate::SessionError;
use crate::source::{Generator, TaskSource};

/// The sweep itself, after checking all of it.
pub fn build_sweep(
    spec: &SweepSpec,
    language: SweepLanguage,
    colour: Colour,
) -> Result<Sweep, SessionError> {
    Sweep::new(spec, language).map_err(|error| match error {
        SweepError::Template(error) => SessionError::Rendered(error.render("template", colour)),
        other => other.into(),
    })
}

/// The sweep as a source, whose tasks before `first` were made by earlier sessions. Each
/// task is told its parameters.
pub fn sweep_source(sweep: Sweep, first: u32) -> Result<Box<dyn TaskSource>, SessionError> {
    let total = sweep.len();
    let total = u32::try_from(total).map_err(|_| SessionError::TooManyCombinations(total))?;
    let make = move |place: u32| {
        let values = sweep.values(place.into()).into_iter();
        let params = values.map(|(name, value)| (name.to_owned(), value.into()));
        TaskSpec {
            params: params.collect(),
            ..TaskSpec::new(Command::Line(sweep.command(place.into()).unwrap_or_default()))
        }
    };
    Ok(Box::new(Generator::new(total, first, make)))
}
