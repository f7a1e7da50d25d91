use super::diagnosis::{read_task, value_place};
use crate::Entry;
use crate::lines::{LineError, LineReader};
use crate::spec_problem::check;

/// A line has come, without its newline.
pub(crate) fn read_line(reader: &mut LineReader, line: &[u8]) -> Option<Result<Entry, LineError>> {
    let (number, line) = reader.count(line);
    if line.trim_ascii().is_empty() {
        return None;
    }
    let wrong = |(place, problem)| LineError::new(number, line, place, problem);
    let spec = match read_task(line) {
        Ok(spec) => spec,
        Err(problems) => {
            let problems = problems.into_iter();
            let problems = problems.map(|(place, problem)| wrong((place, problem.into())));
            reader.errors.extend(problems);
            return None;
        }
    };
    if let Err((key, problem)) = check(&spec, &reader.names) {
        return Some(Err(wrong((value_place(line, key), problem.into()))));
    }
    reader.names.insert(spec.name.as_ref());
    Some(Ok(Entry { line: number, spec }))
}
