mod files;
mod names;
mod python;

use packhorse_model::{Command, GridLanguage};

use super::{Grid, GridFileError};

/// A YAML file with these lines.
fn yaml(text: &str) -> Grid {
    Grid::read(text, GridLanguage::Yaml, None).unwrap()
}

/// What is said of a file that cannot be used.
fn refused(text: &str, language: GridLanguage) -> String {
    match Grid::read(text, language, None).map(|_| ()) {
        Err(GridFileError::File(error)) => error.render("tests", crate::Colour::Off),
        Err(other) => other.to_string(),
        Ok(()) => panic!("this was taken: {text}"),
    }
}

fn folders(grid: &Grid) -> Vec<String> {
    (0..grid.len()).map(|place| grid.folder_name(place)).collect()
}

/// The command of the first test, as a person would type it.
fn command(grid: &Grid) -> String {
    grid.test(0).command.to_text().into_owned()
}

fn words(words: &[&str]) -> Command {
    Command::Words(words.iter().map(|word| word.as_bytes().to_vec()).collect())
}
