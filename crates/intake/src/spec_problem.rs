//! What can be wrong with the values of a task, through whichever door it comes.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use packhorse_model::{Command, ProbeSpec, TaskSpec};

use crate::InputProblem;
use crate::excerpt::quoted;
use crate::names::Names;
use crate::nearest::did_you_mean;
use crate::probe::{ProbeProblem, ProbeTemplate};

/// A signature is a key in the store and a column on the screen.
const LONGEST_SIGNATURE: usize = 200;

/// What is wrong with a value of a task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecProblem {
    /// There is nothing to run.
    #[error("this task has no command")]
    NoCommand,
    /// No program can be given a NUL byte.
    #[error("`{0}` contains a NUL byte")]
    Nul(&'static str),
    /// A path with nothing in it.
    #[error("`{0}` is empty")]
    Empty(&'static str),
    /// A value that cannot be a task's name.
    #[error("`{0}` cannot be the name of a task")]
    Name(String),
    /// A name that no earlier task has, and the one that was probably meant.
    #[error("no earlier task is called `{0}`")]
    UnknownName(String, Option<String>),
    /// A name that an earlier task already has.
    #[error("an earlier task is already called `{0}`")]
    NameTaken(String),
    /// A value that cannot be the name of an environment variable.
    #[error("`{0}` cannot be the name of an environment variable")]
    VariableName(String),
    /// A signature that is empty, or cannot be shown.
    #[error("this cannot be a signature")]
    Signature,
    /// A value that cannot be the name of a Python module.
    #[error("`{0}` cannot be the name of a Python module")]
    Module(String),
    /// A list of GPU models in which one is missing.
    #[error("this list of GPU models is missing a name")]
    GpuModel,
    /// A probe that cannot be used.
    #[error(transparent)]
    Probe(ProbeProblem),
}

impl InputProblem for SpecProblem {
    fn hint(&self) -> String {
        let hint = match self {
            Self::NoCommand => "write what to run: `\"command\": \"python train.py\"`",
            Self::Nul(_) => "remove it",
            Self::Empty(_) => "write a path, or leave it out",
            Self::Name(_) => "a name has letters, digits, `.`, `_` and `-`",
            Self::UnknownName(_, Some(nearest)) => return did_you_mean(nearest),
            Self::UnknownName(_, None) => "give an earlier task this name",
            Self::NameTaken(_) => "choose another name",
            Self::VariableName(_) => "it needs at least one character, and no `=`",
            Self::Signature => "write a word of at most 200 characters",
            Self::Module(_) => "write names as `import` takes them, such as torch or os.path",
            Self::GpuModel => "write one name, or several with commas: A100,H100",
            Self::Probe(problem) => return problem.hint(),
        };
        hint.to_owned()
    }

    fn label(&self) -> &'static str {
        match self {
            Self::NoCommand => "no command",
            Self::Nul(_) => "a NUL byte",
            Self::Empty(_) => "nothing here",
            Self::UnknownName(..) => "unknown name",
            Self::NameTaken(_) => "taken",
            Self::Name(_)
            | Self::VariableName(_)
            | Self::Signature
            | Self::Module(_)
            | Self::GpuModel => "this value",
            Self::Probe(problem) => problem.label(),
        }
    }
}

/// The first thing that is wrong with a task among others, and which of its
/// values it is about.
pub(crate) fn check(spec: &TaskSpec, names: &Names) -> Result<(), (&'static str, SpecProblem)> {
    let at = |key| move |problem| (key, problem);
    check_command(&spec.command).map_err(at("command"))?;
    if let Some(name) = &spec.name {
        names.check_new(name).map_err(at("name"))?;
    }
    for earlier in &spec.after {
        names.check_known(earlier).map_err(at("after"))?;
    }
    check_values(spec)
}

/// The first thing that is wrong with what a task says besides its command and
/// its relations to others, and which value it is about: all that the defaults of
/// a run can say.
pub fn check_values(spec: &TaskSpec) -> Result<(), (&'static str, SpecProblem)> {
    let at = |key| move |problem| (key, problem);
    for (name, value) in &spec.env {
        check_variable(name, &value.0).map_err(at("env"))?;
    }
    for (key, path) in [("folder", &spec.folder), ("results", &spec.results), ("log", &spec.log)] {
        if let Some(path) = path {
            check_path(key, path).map_err(at(key))?;
        }
    }
    for module in &spec.preload {
        check_module(module).map_err(at("preload"))?;
    }
    if let Some(models) = &spec.gpu_model {
        check_gpu_model(models).map_err(at("gpu_model"))?;
    }
    if let Some(signature) = &spec.signature {
        check_signature(signature).map_err(at("signature"))?;
    }
    if let Some(ProbeSpec::Template(template)) = &spec.probe {
        ProbeTemplate::parse(template)
            .map_err(|error| ("probe", SpecProblem::Probe(error.problem().clone())))?;
    }
    Ok(())
}

fn check_command(command: &Command) -> Result<(), SpecProblem> {
    let (is_empty, has_nul) = match command {
        Command::Line(line) => {
            (line.iter().all(u8::is_ascii_whitespace), memchr::memchr(0, line).is_some())
        }
        Command::Words(words) => {
            (words.first().is_none_or(Vec::is_empty), words.iter().any(|word| word.contains(&0)))
        }
    };
    if is_empty {
        return Err(SpecProblem::NoCommand);
    }
    no_nul("command", has_nul)
}

pub(crate) fn check_variable(name: &str, value: &[u8]) -> Result<(), SpecProblem> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(SpecProblem::VariableName(quoted(name.as_bytes())));
    }
    no_nul("env", value.contains(&0))
}

pub(crate) fn check_path(key: &'static str, path: &Path) -> Result<(), SpecProblem> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Err(SpecProblem::Empty(key));
    }
    no_nul(key, bytes.contains(&0))
}

pub(crate) fn check_signature(signature: &str) -> Result<(), SpecProblem> {
    let fits = !signature.is_empty() && signature.chars().count() <= LONGEST_SIGNATURE;
    if !fits || signature.contains(char::is_control) {
        return Err(SpecProblem::Signature);
    }
    Ok(())
}

pub(crate) fn check_module(name: &str) -> Result<(), SpecProblem> {
    let is_word = |word: &str| {
        let mut letters = word.chars();
        letters.next().is_some_and(|c| c == '_' || c.is_alphabetic())
            && letters.all(|c| c == '_' || c.is_alphanumeric())
    };
    if !name.split('.').all(is_word) {
        return Err(SpecProblem::Module(quoted(name.as_bytes())));
    }
    Ok(())
}

pub(crate) fn check_gpu_model(models: &str) -> Result<(), SpecProblem> {
    if models.split(',').any(|model| model.trim().is_empty()) {
        return Err(SpecProblem::GpuModel);
    }
    Ok(())
}

fn no_nul(key: &'static str, has_nul: bool) -> Result<(), SpecProblem> {
    if has_nul {
        return Err(SpecProblem::Nul(key));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_measured_in_characters() {
        assert_eq!(check_signature(&"é".repeat(200)), Ok(()));
        let longer = check_signature(&"é".repeat(201));
        assert_eq!(longer, Err(SpecProblem::Signature));
    }
}
