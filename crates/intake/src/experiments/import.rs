//! Experiments that build on others, of the same file or of another.

use std::path::{Path, PathBuf};

use super::documents::{ConfigFile, Document, FileError, ReadFile};
use super::key_places::KeyPlaces;
use super::keys::check_experiment;
use super::merge::{Members, get, merge, set, take, text};
use super::paths::beside;
use super::problem::ExperimentProblem;
use crate::grid::value::GridValue;
use crate::nearest::nearest;

/// Nobody imports so deep: it is a circle that links of folders hide.
const DEEPEST: usize = 64;

/// Puts experiments together out of what they import.
pub(super) struct Importer<'a, 'r> {
    pub read: &'a mut ReadFile<'r>,
    pub warnings: &'a mut Vec<FileError>,
    /// Where the keys of the experiment stand.
    pub places: KeyPlaces,
}

/// What is being imported: a file and an experiment of it.
type Stack = Vec<(PathBuf, String)>;

impl Importer<'_, '_> {
    /// An experiment of a file, laid over the file's DEFAULT and all that both import.
    pub fn resolve(
        &mut self,
        file: &ConfigFile,
        document: &Document,
    ) -> Result<Members, FileError> {
        let mut stack = vec![(file.path.clone(), document.name.clone())];
        let members = self.over_default(file, document)?;
        self.with_imports(file, members, &mut stack)
    }

    fn over_default(
        &mut self,
        file: &ConfigFile,
        document: &Document,
    ) -> Result<Members, FileError> {
        self.check(file, document)?;
        match file.default() {
            Some(default) => {
                self.check(file, default)?;
                Ok(merge(default.members.clone(), &document.members))
            }
            None => Ok(document.members.clone()),
        }
    }

    fn check(&mut self, file: &ConfigFile, document: &Document) -> Result<(), FileError> {
        let mut warnings = Vec::new();
        check_experiment(file.source(), document, &mut warnings)
            .map_err(|error| file.wrong(error))?;
        self.places.note(file, document);
        for warning in warnings {
            let warning = file.wrong(warning);
            // DEFAULT is looked at for each experiment.
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        Ok(())
    }

    fn with_imports(
        &mut self,
        file: &ConfigFile,
        members: Members,
        stack: &mut Stack,
    ) -> Result<Members, FileError> {
        let path = get(&members, "import_path");
        let experiment = get(&members, "import_exp");
        let Some(span) = path.or(experiment).map(|value| value.span.clone()) else {
            return Ok(members);
        };
        let wrong = |problem| file.wrong(file.source().error(span.clone(), problem));
        let path = path.map(GridValue::as_written);
        let name = experiment.map(GridValue::as_written);
        let name = name.filter(|name| name.to_lowercase() != "default");
        let other;
        let imported = match &path {
            Some(path) => {
                let (at, shown) = (beside(&file.path, path), beside(&file.shown, path));
                let text = (self.read)(&at).map_err(|error| {
                    wrong(ExperimentProblem::Import {
                        path: shown.display().to_string(),
                        message: error.to_string(),
                    })
                })?;
                other = ConfigFile::read(at, shown, text)?;
                &other
            }
            None => file,
        };
        let key = (imported.path.clone(), name.clone().unwrap_or_else(|| "DEFAULT".to_owned()));
        if stack.contains(&key) || stack.len() > DEEPEST {
            let mut circle: Vec<String> = stack.iter().map(shown).collect();
            circle.push(shown(&key));
            return Err(wrong(ExperimentProblem::Cycle(circle.join(" → "))));
        }
        let missing = |name: String| {
            let known = imported.experiments().map(|known| known.name.as_str());
            let path = imported.shown.display().to_string();
            let nearest = nearest(&name, known).map(str::to_owned);
            wrong(ExperimentProblem::ImportedExperiment { name, path, nearest })
        };
        let parent = if let Some(name) = name {
            let mut experiments = imported.experiments();
            let found = experiments.find(|known| known.name == name);
            let found = found.ok_or_else(|| missing(name))?;
            self.over_default(imported, found)?
        } else {
            let default = imported.default();
            let default = default.ok_or_else(|| missing("DEFAULT".to_owned()))?;
            self.check(imported, default)?;
            default.members.clone()
        };
        stack.push(key);
        let parent = self.with_imports(imported, parent, stack)?;
        stack.pop();
        let mut members = merge(parent, &members);
        for (key, archive) in
            [("import_path", "_import_path_archive"), ("import_exp", "_import_exp_archive")]
        {
            if let Some(value) = take(&mut members, key) {
                set(&mut members, archive, text(&value.as_written()));
            }
        }
        Ok(members)
    }
}

/// `base.yml: DEFAULT`
fn shown((path, name): &(PathBuf, String)) -> String {
    let file = path.file_name().map_or(path.as_path(), Path::new);
    format!("{}: {name}", file.display())
}
