//! What the fuzzer calls, with any bytes. Each also checks what must hold of
//! every input, so that a crash is not the only thing it can find. The tests of
//! `packhorse-intake` call the same.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;

use packhorse_intake::csv::{self, Header};
use packhorse_intake::experiments::{Experiments, ExperimentsError, ReadOptions};
use packhorse_intake::grid::{Grid, GridFileError};
use packhorse_intake::lines::{LineError, Separator};
use packhorse_intake::probe::ProbeTemplate;
use packhorse_intake::signature::{SignatureDraft, is_member};
use packhorse_intake::sweep::{Sweep, SweepError, SweepLanguage};
use packhorse_intake::{Colour, Entry, TaskLanguage, TaskReader};
use packhorse_model::{Command, GridLanguage, SweepSpec};

/// Lines give the same result however the bytes were cut.
pub fn lines(data: &[u8]) {
    for separator in [Separator::Newline, Separator::Null] {
        let language = TaskLanguage::Lines(separator);
        let whole = read(language, [data]);
        let cut = usize::from(data.first().copied().unwrap_or(0)) % 7 + 1;
        let pieces = read(language, data.chunks(cut));
        assert_eq!(whole, pieces, "cut into {cut}");
        for found in whole {
            match found {
                Ok(entry) => assert!(!entry.spec.command.is_empty() && entry.line > 0),
                Err(error) => {
                    let message = error.render("jobs.txt", Colour::Off);
                    assert!(message.contains("jobs.txt") && !message.contains('\0'));
                }
            }
        }
    }
}

fn read<'a>(
    language: TaskLanguage,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<Result<Entry, LineError>> {
    let mut lines = TaskReader::new(language);
    let mut found = Vec::new();
    for piece in pieces {
        lines.push(piece);
        found.extend(lines.by_ref());
    }
    lines.finish();
    found.extend(lines.by_ref());
    assert!(lines.next().is_none());
    found
}

/// Task lines give the same result however the bytes were cut, and a task is
/// read as the same when it is written again.
pub fn task_lines(data: &[u8]) {
    let whole = read(TaskLanguage::TaskLines, [data]);
    let cut = usize::from(data.first().copied().unwrap_or(0)) % 7 + 1;
    let pieces = read(TaskLanguage::TaskLines, data.chunks(cut));
    assert_eq!(whole, pieces, "cut into {cut}");
    for found in whole {
        match found {
            Ok(Entry { line, spec }) => {
                assert!(line > 0 && !spec.command.is_empty());
                let json = serde_json::to_string(&spec).ok();
                let again = json.and_then(|json| serde_json::from_str(&json).ok());
                assert_eq!(again, Some(spec));
            }
            Err(error) => {
                let message = error.render("tasks.jsonl", Colour::Off);
                assert!(message.contains("tasks.jsonl") && !message.contains('\0'));
            }
        }
    }
}

/// The first line is a template, and every other line a parameter with its values:
/// a sweep is refused with a message, or its parts agree.
pub fn sweep(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for (seed, language) in [
        (None, SweepLanguage::Packhorse),
        (Some(data.len() as u64), SweepLanguage::Packhorse),
        (None, SweepLanguage::Original),
    ] {
        match built(&text, seed, language) {
            Ok(sweep) => check(&sweep),
            Err(SweepError::Template(error)) => {
                let message = error.render("template", Colour::On);
                assert!(message.contains("template"));
            }
            Err(error) => assert!(error.to_string().contains("hint: ")),
        }
    }
}

fn built(text: &str, seed: Option<u64>, language: SweepLanguage) -> Result<Sweep, SweepError> {
    let mut lines = text.split('\n');
    let mut spec = SweepSpec {
        template: lines.next().unwrap_or_default().to_owned(),
        seed,
        limit: Some(50),
        ..SweepSpec::default()
    };
    for line in lines {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        if name == "--zip" {
            spec.zips.push(words.map(str::to_owned).collect());
        } else {
            let values = words.map(str::to_owned).collect();
            spec.parameters.push((name.to_owned(), values));
        }
    }
    Sweep::new(&spec, language)
}

fn check(sweep: &Sweep) {
    let mut written = Vec::new();
    let mut wanted = Vec::new();
    for (index, command) in sweep.commands().enumerate() {
        assert_eq!(sweep.command(index as u128).as_ref(), Some(&command));
        wanted.extend_from_slice(&command);
        wanted.push(b'\n');
    }
    assert_eq!(sweep.command(sweep.len()), None);
    if sweep.write_to(&mut written, Separator::Newline).is_ok() {
        assert_eq!(written, wanted);
    }
    let _ = sweep.write_to(&mut io::sink(), Separator::Null);
}

/// A file is refused with messages, or each of its rows can be found again by
/// its bytes.
pub fn csv(data: &[u8]) {
    for header in [Header::Row(0), Header::Row(2), Header::None] {
        let settings = csv::CsvSettings {
            header,
            base: Path::new("/"),
            python: OsStr::new("python"),
            path: OsStr::new(""),
        };
        match csv::read(data, &settings) {
            Ok(table) => {
                for row in table.rows {
                    let record = &data[row.record.clone()];
                    let alone = csv::CsvSettings { header: Header::None, ..settings };
                    assert!(row.line > 0 && !row.words.is_empty() && row.epochs > 0);
                    if header == Header::None {
                        let again = csv::read(record, &alone).map(|table| table.rows);
                        let command = again.map(|rows| rows[0].task(0).command);
                        assert_eq!(command, Ok(row.task(0).command));
                    }
                }
            }
            Err(mistakes) => {
                assert!(!mistakes.is_empty());
                for mistake in mistakes {
                    let message = mistake.render("tasks.csv", Colour::Off);
                    assert!(message.contains("tasks.csv") && !message.contains('\0'));
                }
            }
        }
    }
}

/// Every command has a shape that can be kept and printed.
pub fn shape(data: &[u8]) {
    let words = data.split(|&byte| byte == b'\n').map(<[u8]>::to_vec);
    for command in [Command::Line(data.to_vec()), Command::Words(words.collect())] {
        let draft = SignatureDraft::new(&command, &BTreeMap::new(), Path::new("/a/b"));
        let contents = vec![Some(1); draft.files().len()];
        for contents in [&[][..], &contents] {
            let found = draft.clone().finish(contents);
            assert!(found.name.len() <= 268, "{found:?}");
            assert!(!found.name.contains(char::is_control), "{found:?}");
            let family = found.family.as_ref();
            assert!(family.is_none_or(|family| is_member(&found.name, family)));
        }
    }
}

/// A probe is refused with a message, or contains the command.
pub fn probe(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match ProbeTemplate::parse(&text) {
        Ok(probe) => {
            let line = probe.command(b"\x01");
            assert!(line.contains(&1));
        }
        Err(error) => assert!(error.render("probe", Colour::On).contains("probe")),
    }
}

/// A grid file in any language: a mistake has its line, and a test has a folder that a file
/// system takes.
pub fn grid(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for language in
        [GridLanguage::Yaml, GridLanguage::Toml, GridLanguage::Json, GridLanguage::Python]
    {
        match Grid::read(&text, language, None) {
            Ok(grid) => {
                for place in 0..grid.len().min(20) {
                    let name = grid.folder_name(place);
                    assert!(name.len() <= 255 && !name.contains(['/', '\0']), "{name}");
                    assert!(grid.test(place).results.is_some());
                }
            }
            Err(GridFileError::File(error)) => {
                let message = error.render("tests.yaml", Colour::Off);
                assert!(message.contains("tests.yaml:") && message.contains("hint: "));
            }
            Err(other) => assert!(other.to_string().contains("hint: ")),
        }
    }
}

/// An experiment file has as many repetitions when it was written back, and every mistake has
/// its place.
pub fn experiments(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let read = |text: &str| {
        let mut files = |path: &Path| match path.to_str() {
            // It may import itself.
            Some("config.yml") => Ok(text.to_owned()),
            _ => Err(io::Error::from(io::ErrorKind::NotFound)),
        };
        let path = Path::new("config.yml");
        Experiments::read(path, path, &ReadOptions::default(), &mut files)
    };
    match read(&text) {
        Ok(experiments) => {
            for place in 0..experiments.len().min(20) {
                let rep = experiments.at(place);
                assert!(rep.job() < experiments.jobs());
                assert!(rep.task().results.is_some() && rep.config().contains("\"_rep_idx\""));
                let parts = rep.run().split('/').map(str::len);
                assert!(parts.max().unwrap_or(0) <= 255, "{}", rep.run());
            }
            if experiments.len() <= 200 {
                let mut written = Vec::new();
                experiments.write_back(None, &mut written).expect("a Vec takes all");
                let written =
                    String::from_utf8(written).expect("what was read as text is written as text");
                let again = read(&written).unwrap_or_else(|error| panic!("{error}\n{written}"));
                assert_eq!(again.len(), experiments.len(), "{written}");
            }
        }
        Err(ExperimentsError::File(error)) => {
            let error = ExperimentsError::File(error);
            let message = error.render(Colour::Off);
            assert!(message.contains("config.yml:") && message.contains("hint: "));
        }
        Err(other) => assert!(other.to_string().contains("hint: "), "{other}"),
    }
}
