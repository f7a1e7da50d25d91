//! What is wrong with a layer of settings, said with its place.

use packhorse_intake::probe::ProbeTemplate;
use packhorse_intake::{InputProblem as _, check_values, did_you_mean, nearest};
use packhorse_model::ProbeSpec;

use super::{Layer, RefusedKeys, SettingOrigin};
use crate::SessionError;
use crate::ignored_process::IgnoredProcess;

/// Checks the values that can be judged without knowing the machine.
pub(super) fn check(layer: &Layer, origin: &SettingOrigin) -> Result<(), SessionError> {
    let wrong = |key: &str, why: String| match origin {
        SettingOrigin::Variable(_) => origin.error(why),
        SettingOrigin::File(_) => origin.error(format!("{key}: {why}")),
    };
    if layer.pool.slots == Some(0) {
        let why = "nothing could run on 0 slots\nhint: say how many tasks run at a time";
        return Err(wrong("pool.slots", why.to_owned()));
    }
    for process in &layer.pool.ignore_process {
        let parsed: Result<IgnoredProcess, String> = process.parse();
        parsed.map_err(|why| wrong("pool.ignore_process", why))?;
    }
    if let Some(ProbeSpec::Template(template)) = &layer.task.probe {
        ProbeTemplate::parse(template).map_err(|error| {
            let (problem, hint) = (error.problem(), error.hint());
            wrong("task.probe", format!("`{template}`: {problem}\nhint: {hint}"))
        })?;
    }
    check_values(&layer.task).map_err(|(key, why)| {
        let hint = why.hint();
        wrong(&format!("task.{key}"), format!("{why}\nhint: {hint}"))
    })
}

/// What is wrong with a file that cannot be read as settings. A key that nobody knows is
/// answered with the one that was probably meant.
pub(super) fn reworded(error: &toml::de::Error, refused: &[RefusedKeys]) -> String {
    let rendered = error.to_string();
    let rendered = rendered.trim_end();
    let message = error.message();
    let Some(rest) = message.strip_prefix("unknown field `") else {
        return rendered.to_owned();
    };
    let mut names = rest.split('`').step_by(2);
    let unknown = names.next().unwrap_or_default();
    let single = |name: &str| {
        let mut keys = refused.iter().flat_map(|(keys, _)| keys.split(' '));
        keys.any(|key| key.rsplit('.').next() == Some(name))
    };
    let known = names.filter(|name| !single(name));
    let hint = nearest(unknown, known)
        .map_or_else(|| "`packhorse config --all` shows what can be set".to_owned(), did_you_mean);
    let reworded = format!("no setting is called `{unknown}`\nhint: {hint}");
    rendered.replace(message, &reworded)
}
