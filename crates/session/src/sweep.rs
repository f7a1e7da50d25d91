//! A sweep as a source of tasks.

use packhorse_intake::Colour;
use packhorse_intake::sweep::{Parameter, Sweep, SweepError, SweepParts, Template, TemplateError};
use packhorse_model::{Command, SweepSpec, TaskSpec};

use crate::SessionError;
use crate::source::{Generator, TaskSource};

/// How the parameters of a sweep are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepLanguage {
    /// `1..5` and the like stand for several values, and each parameter is used.
    Packhorse,
    /// As in the original: values are text, and a parameter may be unused.
    Original,
}

/// The sweep itself, after checking all of it.
pub fn build_sweep(
    spec: &SweepSpec,
    language: SweepLanguage,
    colour: Colour,
) -> Result<Sweep, SessionError> {
    let shown = |error: &TemplateError| SessionError::Rendered(error.render("template", colour));
    let template = Template::parse(&spec.template).map_err(|error| shown(&error))?;
    let is_original = language == SweepLanguage::Original;
    let parameters = spec.parameters.iter().map(|(name, values)| {
        if is_original {
            Parameter::literal(name, values)
        } else {
            Parameter::parse(name, values)
        }
    });
    let sweep = Sweep::new(SweepParts {
        template,
        parameters: parameters.collect::<Result<_, _>>()?,
        zips: spec.zips.clone(),
        seed: spec.seed,
        limit: spec.limit,
        unused_is_fine: is_original,
    });
    sweep.map_err(|error| match error {
        SweepError::Template(error) => shown(&error),
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
            ..TaskSpec::new(Command::Line(
                sweep.command(place.into()).unwrap_or_default(),
            ))
        }
    };
    Ok(Box::new(Generator::new(total, first, make)))
}
