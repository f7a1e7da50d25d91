//! A short run of a task that shows how much memory it takes: the person's
//! template with the task's command in it.

use crate::excerpt::quoted;
use crate::mistake::{Mistake, Problem};
use crate::sweep::TemplateProblem;
use crate::sweep::pieces::{Piece, Unnamed, pieces};

/// A command with a place for the command of a task.
///
/// `{}` or `{command}` is the place, `{{` and `}}` are braces as in a sweep. The
/// command is put in as it is, so what follows it on the line goes to its last
/// program: `python a.py | tee log` with `{} --epochs 2` would give the option
/// to `tee`.
///
/// ```
/// use packhorse_intake::probe::Probe;
///
/// let probe = Probe::parse("{} --epochs 2")?;
/// assert_eq!(probe.command(b"python train.py"), b"python train.py --epochs 2");
/// # Ok::<(), packhorse_intake::probe::ProbeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// `None` is the place of the command.
    parts: Vec<Option<String>>,
}

/// A probe that cannot be used.
pub type ProbeError = Mistake<ProbeProblem>;

/// What is wrong with a probe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeProblem {
    /// Its braces.
    #[error(transparent)]
    Template(#[from] TemplateProblem),
    /// A placeholder for something else.
    #[error("a probe has no `{name}` to put here")]
    Unknown {
        /// The placeholder's name.
        name: String,
    },
    /// It would measure something else than the task.
    #[error("this probe does not run the task's command")]
    NoPlace,
}

impl Problem for ProbeProblem {
    fn hint(&self) -> String {
        let hint = match self {
            Self::Template(
                problem @ (TemplateProblem::Unclosed
                | TemplateProblem::Nested
                | TemplateProblem::Single),
            ) => return problem.hint(),
            Self::Template(_) | Self::Unknown { .. } => {
                "write {} where the task's command goes, and {{ and }} for literal braces"
            }
            Self::NoPlace => "write {} where the task's command goes: {} --epochs 2",
        };
        hint.to_owned()
    }

    fn label(&self) -> &'static str {
        match self {
            Self::Template(problem) => problem.label(),
            Self::Unknown { .. } => "unknown",
            Self::NoPlace => "no {} in it",
        }
    }

    fn place(_line: u64, column: u64) -> String {
        format!("probe, column {column}")
    }
}

impl Probe {
    /// Reads a template.
    pub fn parse(source: &str) -> Result<Self, ProbeError> {
        let wrong = |place, problem| ProbeError::new(1, source.as_bytes(), place, problem);
        let pieces = pieces(source, Unnamed::Allowed).map_err(|(place, problem)| {
            let problem = match problem {
                TemplateProblem::Positional => ProbeProblem::Unknown {
                    name: quoted(&source.as_bytes()[place.start + 1..place.end - 1]),
                },
                other => ProbeProblem::Template(other),
            };
            wrong(place, problem)
        })?;
        let mut parts = Vec::new();
        for piece in pieces {
            parts.push(match piece {
                Piece::Literal(text) => Some(text),
                Piece::Placeholder { name, .. } if name.is_empty() || name == "command" => None,
                Piece::Placeholder { name, place } => {
                    let name = quoted(name.as_bytes());
                    return Err(wrong(place, ProbeProblem::Unknown { name }));
                }
            });
        }
        if !parts.contains(&None) {
            return Err(wrong(0..source.len(), ProbeProblem::NoPlace));
        }
        Ok(Self { parts })
    }

    /// The line that probes the task whose line is `command`.
    pub fn command(&self, command: &[u8]) -> Vec<u8> {
        let mut line = Vec::new();
        for part in &self.parts {
            line.extend_from_slice(part.as_ref().map_or(command, |text| text.as_bytes()));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Colour;

    #[test]
    fn the_command_goes_where_the_braces_are() {
        for (template, wanted) in [
            ("{} --epochs 2", "a {b} --epochs 2"),
            ("timeout 60 {command}", "timeout 60 a {b}"),
            ("{}", "a {b}"),
            ("{} && {}", "a {b} && a {b}"),
            ("{} --json {{}}", "a {b} --json {}"),
        ] {
            let probe = Probe::parse(template).unwrap();
            assert_eq!(probe.command(b"a {b}"), wanted.as_bytes(), "{template}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_at_its_column() {
        for (template, column, wanted) in [
            ("--epochs 2", 1, "does not run the task's command"),
            ("", 1, "does not run the task's command"),
            ("{{}} --epochs 2", 1, "does not run the task's command"),
            ("{} --epochs {", 13, "never closed"),
            ("{} --epochs }", 13, "closes nothing"),
            ("{} --lr {lr}", 9, "no `lr` to put here"),
            ("{0}", 1, "no `0` to put here"),
            ("{:x}", 1, "no `:x` to put here"),
            ("{command!r}", 9, "cannot have a conversion"),
        ] {
            let error = Probe::parse(template).unwrap_err();
            assert_eq!(error.column(), column, "{template}: {error}");
            assert!(error.to_string().contains(wanted), "{template}: {error}");
            assert!(!error.hint().contains("-p"), "{template}: {error}");
        }
    }

    #[test]
    fn the_message_quotes_the_template() {
        let error = Probe::parse("python t.py --epochs 2").unwrap_err();
        let wanted = "\
error: this probe does not run the task's command
 --> --probe:1:1
  |
1 | python t.py --epochs 2
  | ^^^^^^^^^^^^^^^^^^^^^^ no {} in it
  |
  = hint: write {} where the task's command goes: {} --epochs 2";
        assert_eq!(error.render("--probe", Colour::Off), wanted);
    }
}
