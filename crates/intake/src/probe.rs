//! A short run of a task that shows how much memory it takes: the person's
//! template with the task's command in it.

use packhorse_model::{Command, ProbeSpec};

use crate::excerpt::quoted;
use crate::input_error::{InputError, InputProblem};
use crate::sweep::TemplateProblem;
use crate::sweep::pieces::{Placeholders, TemplatePiece, pieces};

/// A command with a place for the command of a task.
///
/// `{}` or `{command}` is the place, `{{` and `}}` are braces as in a sweep. The
/// command is put in as it is, so what follows it on the line goes to its last
/// program: `python a.py | tee log` with `{} --epochs 2` would give the option
/// to `tee`.
///
/// ```
/// use packhorse_intake::probe::ProbeTemplate;
///
/// let probe = ProbeTemplate::parse("{} --epochs 2")?;
/// assert_eq!(probe.command(b"python train.py"), b"python train.py --epochs 2");
/// # Ok::<(), packhorse_intake::probe::ProbeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeTemplate {
    /// `None` is the place of the command.
    parts: Vec<Option<String>>,
}

/// A probe that cannot be used.
pub type ProbeError = InputError<ProbeProblem>;

/// What is wrong with a probe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeProblem {
    /// Its braces.
    #[error(transparent)]
    Template(#[from] TemplateProblem),
    /// A placeholder for something else.
    #[error("a probe has no `{0}` to put here")]
    Unknown(String),
    /// It would measure something else than the task.
    #[error("this probe does not run the task's command")]
    NoPlace,
}

impl InputProblem for ProbeProblem {
    fn hint(&self) -> String {
        let hint = match self {
            Self::Template(
                problem @ (TemplateProblem::Unclosed
                | TemplateProblem::Nested
                | TemplateProblem::Single),
            ) => return problem.hint(),
            Self::Template(_) | Self::Unknown(_) => {
                "write {} where the task's command goes, and {{ and }} for literal braces"
            }
            Self::NoPlace => "write {} where the task's command goes: {} --epochs 2",
        };
        hint.to_owned()
    }

    fn label(&self) -> &'static str {
        match self {
            Self::Template(problem) => problem.label(),
            Self::Unknown(_) => "unknown",
            Self::NoPlace => "no {} in it",
        }
    }

    fn place(_line: u64, column: u64) -> String {
        format!("probe, column {column}")
    }
}

impl ProbeTemplate {
    /// Reads a template.
    pub fn parse(source: &str) -> Result<Self, ProbeError> {
        let wrong = |place, problem| ProbeError::new(1, source.as_bytes(), place, problem);
        let pieces = pieces(source, Placeholders::MayBeUnnamed).map_err(|(place, problem)| {
            let problem = match problem {
                TemplateProblem::Positional => ProbeProblem::Unknown(quoted(
                    &source.as_bytes()[place.start + 1..place.end - 1],
                )),
                other => ProbeProblem::Template(other),
            };
            wrong(place, problem)
        })?;
        let mut parts = Vec::new();
        for piece in pieces {
            parts.push(match piece {
                TemplatePiece::Literal(text) => Some(text),
                TemplatePiece::Placeholder { name, .. } if name.is_empty() || name == "command" => {
                    None
                }
                TemplatePiece::Placeholder { name, place } => {
                    let problem = ProbeProblem::Unknown(quoted(name.as_bytes()));
                    return Err(wrong(place, problem));
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

/// What to run to measure a task with this command, if that can be made of it:
/// a template needs a line, and a number of epochs a word `--epochs=N`.
pub fn probe_command(probe: &ProbeSpec, command: &Command) -> Option<Command> {
    match (probe, command) {
        (ProbeSpec::Template(template), Command::Line(line)) => {
            let template = ProbeTemplate::parse(template).ok()?;
            Some(Command::Line(template.command(line)))
        }
        (ProbeSpec::Epochs(most), Command::Words(words)) => {
            let mut words = words.clone();
            let (word, number) = words.iter_mut().rev().find_map(|word| {
                let number = str::from_utf8(word).ok()?.strip_prefix("--epochs=")?;
                let number: u32 = number.parse().ok()?;
                Some((word, number))
            })?;
            *word = format!("--epochs={}", number.min(*most)).into_bytes();
            Some(Command::Words(words))
        }
        // Words have no place in a template that is a line, nor a line words to
        // look for epochs in.
        _ => None,
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
            let probe = ProbeTemplate::parse(template).unwrap();
            assert_eq!(probe.command(b"a {b}"), wanted.as_bytes(), "{template}");
        }
    }

    #[test]
    fn a_template_is_for_lines_and_epochs_are_for_words() {
        let line = |text: &str| Command::Line(text.into());
        let words = |texts: &[&str]| Command::Words(texts.iter().map(|&t| t.into()).collect());
        let template = ProbeSpec::Template("{} --epochs 1".to_owned());
        let epochs = ProbeSpec::Epochs(2);
        for (probe, command, wanted) in [
            (&template, line("a"), Some(line("a --epochs 1"))),
            (&template, words(&["a"]), None),
            (&ProbeSpec::Template("a".to_owned()), line("a"), None),
            (
                &epochs,
                words(&["a", "--epochs=9", "--epochs=90", "--id=1"]),
                Some(words(&["a", "--epochs=9", "--epochs=2", "--id=1"])),
            ),
            (&epochs, words(&["a", "--epochs=1"]), Some(words(&["a", "--epochs=1"]))),
            (&epochs, words(&["a", "--epochs=x"]), None),
            (&epochs, line("a --epochs=9"), None),
        ] {
            assert_eq!(probe_command(probe, &command), wanted, "{command:?}");
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
            let error = ProbeTemplate::parse(template).unwrap_err();
            assert_eq!(error.column(), column, "{template}: {error}");
            assert!(error.to_string().contains(wanted), "{template}: {error}");
            assert!(!error.hint().contains("-p"), "{template}: {error}");
        }
    }

    #[test]
    fn the_message_quotes_the_template() {
        let error = ProbeTemplate::parse("python t.py --epochs 2").unwrap_err();
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
