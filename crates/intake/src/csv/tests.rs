use std::ffi::OsStr;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use packhorse_model::{Bytes, Command, GpuRequest, Milli, Priority, TimeLimit, VramRequest};

use super::*;
use crate::Colour;

mod consumed;

/// Folders with scripts in them, and a `PATH` with one program.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for folder in ["bin", "code1", "my code"] {
            fs_err::create_dir(place.0.path().join(folder)).unwrap();
        }
        for (file, mode) in [
            ("bin/python", 0o755),
            ("code1/train.py", 0o644),
            ("code1/my train.py", 0o644),
            ("my code/main.py", 0o644),
            ("my code/own python", 0o755),
        ] {
            let file = place.0.path().join(file);
            fs_err::write(&file, "").unwrap();
            fs_err::set_permissions(file, PermissionsExt::from_mode(mode)).unwrap();
        }
        place
    }

    fn read(&self, header: Header, bytes: impl AsRef<[u8]>) -> Result<CsvTable, Vec<CsvError>> {
        let bin = self.0.path().join("bin");
        let settings = CsvSettings {
            header,
            base: self.0.path(),
            python: OsStr::new("/opt/python"),
            path: bin.as_os_str(),
        };
        read(bytes.as_ref(), &settings)
    }

    /// The words of each row; nothing is wrong with the file.
    fn commands(&self, header: Header, bytes: impl AsRef<[u8]>) -> Vec<String> {
        let table = self.read(header, bytes).unwrap();
        let words = table.rows.into_iter().map(|row| row.words.join(&b'|'));
        words.map(|words| String::from_utf8(words).unwrap()).collect()
    }

    /// What is wrong, each with its line and column.
    fn problems(&self, bytes: impl AsRef<[u8]>) -> Vec<(u64, u64, String)> {
        let mistakes = self.read(Header::Row(0), bytes).unwrap_err();
        let mistakes = mistakes.into_iter().map(|mistake| {
            assert!(!mistake.hint().is_empty());
            (mistake.line(), mistake.column(), mistake.problem().to_string())
        });
        mistakes.collect()
    }
}

const HEADER: &str = "Directory,Executable,Filename,Epochs,Priority\n";

#[test]
fn a_row_is_a_command_in_a_folder() {
    let place = Place::new();
    let input = format!("{HEADER}\ncode1,-1,train.py,90,-2\n");
    let table = place.read(Header::Row(0), &input).unwrap();
    let row = &table.rows[0];
    assert_eq!((table.rows.len(), row.line), (1, 3));
    assert_eq!(&input[row.record.clone()], "code1,-1,train.py,90,-2");
    assert_eq!(row.spec.folder, Some(place.0.path().join("code1")));
    assert_eq!(row.spec.priority, Some(Priority(-2)));
    assert!(row.spec.command.is_empty(), "it needs an id first");
    let words = ["/opt/python", "train.py", "--epochs=90", "--id=7"];
    let words = Command::Words(words.map(|word| word.as_bytes().to_vec()).to_vec());
    assert_eq!(row.task(7).command, words);
    let task = row.task(7);
    assert_eq!((task.command, task.priority), (words, row.spec.priority));
}

#[test]
fn further_columns_say_what_the_task_needs() {
    let input = "\
GPUs,memory, PRIORITY ,Epochs,Filename,Executable,Directory,Name,Timeout,Retries
0.5,9G,1,2,train.py,-1,code1,first,2h,3
,auto,1,2,train.py,-1,code1,,,
";
    let rows = Place::new().read(Header::Row(0), input).unwrap().rows;
    let spec = &rows[0].spec;
    assert_eq!(spec.gpus, Some(GpuRequest::Share(Milli(500))));
    assert_eq!(spec.vram, Some(VramRequest::Bytes(Bytes(9 << 30))));
    assert_eq!(spec.timeout, Some(TimeLimit::After(Duration::from_hours(2))));
    assert_eq!((spec.retries, spec.name.as_deref()), (Some(3), Some("first")));
    assert_eq!(rows[1].spec.vram, Some(VramRequest::Auto));
    assert_eq!(rows[1].spec.gpus, None);
}

#[test]
fn the_header_is_where_the_person_says() {
    let place = Place::new();
    let row = "code1,python,train.py,2,1";
    let one = ["python|train.py"];
    let named = format!("my tasks\n\n  \n,,\n{HEADER}{row}");
    assert_eq!(place.commands(Header::Row(2), named), one);
    assert_eq!(place.commands(Header::None, row), one);
    assert_eq!(place.commands(Header::None, ""), [""; 0]);
    assert_eq!(place.commands(Header::Row(0), HEADER), [""; 0]);
    for (text, wanted) in [("0", Header::Row(0)), ("3", Header::Row(3)), ("None", Header::None)] {
        assert_eq!(text.parse(), Ok(wanted));
    }
    assert!("-1".parse::<Header>().is_err());
}

#[test]
fn files_are_read_as_spreadsheets_write_them() {
    let place = Place::new();
    let header = HEADER.trim_end();
    for (input, wanted) in [
        (
            format!("\u{feff}{header},,\r\ncode1,python,train.py,2.0,1,,\r\n,,,,,,\r\n"),
            "python|train.py",
        ),
        (
            format!("{header}\r\" code1 \",\"python\",\"train.py --a \"\"b,c\"\"\",2,1\r"),
            "python|train.py|--a|b,c",
        ),
        (
            format!("{header}\ncode1 , python -u,train.py 'a b' c\\ d,+2,1.0"),
            "python|-u|train.py|a b|c d",
        ),
    ] {
        assert_eq!(place.commands(Header::Row(0), &input), [wanted], "{input}");
        let warnings = place.read(Header::Row(0), &input).unwrap().warnings;
        assert_eq!(warnings, [], "{input}");
    }
}

#[test]
fn a_path_with_a_blank_in_it_is_one_word_if_it_exists() {
    let place = Place::new();
    for (row, wanted) in [
        ("code1,python,my train.py,1,1", "python|my train.py"),
        ("my code,./own python,main.py,1,1", "./own python|main.py"),
        ("code1,../my\\ code/own\\ python,train.py x,1,1", "../my code/own python|train.py|x"),
    ] {
        assert_eq!(place.commands(Header::None, row), [wanted], "{row}");
    }
}

#[test]
fn what_only_the_program_knows_is_not_checked() {
    let place = Place::new();
    let row = "code1,python,-m package.module,1,1";
    assert_eq!(place.commands(Header::None, row), ["python|-m|package.module"]);
}

#[test]
fn wrong_cells_are_named_by_line_and_column() {
    let place = Place::new();
    for (row, column, wanted) in [
        ("code9,-1,train.py,1,1", 1, "there is no folder `code9`"),
        ("~/code1,-1,train.py,1,1", 1, "there is no folder `~/code1`"),
        ("bin/python,-1,train.py,1,1", 1, "`bin/python` is not a folder"),
        (",-1,train.py,1,1", 1, "`Directory` is empty"),
        ("code1,pyhton,train.py,1,1", 7, "there is no program `pyhton`"),
        ("code1,./python -u,train.py,1,1", 7, "there is no program `./python`"),
        ("code1,./train.py,train.py,1,1", 7, "`./train.py` cannot be executed"),
        ("code1,,train.py,1,1", 7, "`Executable` is empty"),
        ("code1,-1, trian.py ,1,1", 11, "there is no file `trian.py`"),
        ("code1,-1,train.py 'x,1,1", 10, "`Filename` has a quote that is never closed"),
        ("code1,-1,train.py\0,1,1", 10, "`Filename` contains a NUL byte"),
        ("code1,-1,train.py,0,1", 19, "`0` is not a whole number from 1 to"),
        ("code1,-1,train.py,2.5,1", 19, "`2.5` is not a whole number"),
        ("code1,-1,train.py,ten,1", 19, "`ten` is not a whole number"),
        ("code1,-1,train.py,1,high", 21, "`Priority`: `high` is not a whole number"),
        ("code1,-1,train.py,1,3000000000", 21, "from -2147483648 to 2147483647"),
        ("code1,-1,train.py,1", 20, "`Priority` is empty"),
        ("code1,-1,train.py,1,1,\"x,y\"", 23, "this row has 6 fields, and there are 5 columns"),
        ("code1,-1,\"train.py,1,1", 10, "this quote is never closed"),
    ] {
        let found = place.problems(format!("{HEADER}{row}\n"));
        assert_eq!(found.len(), 1, "{row:?}: {found:?}");
        assert_eq!((found[0].0, found[0].1), (2, column), "{row:?}: {found:?}");
        assert!(found[0].2.contains(wanted), "{row:?}: {found:?}");
    }
}

#[test]
fn lines_and_columns_are_counted_as_an_editor_does() {
    let place = Place::new();
    let right = "code1,-1,train.py,1,1";
    for (input, wanted) in [
        ("\u{feff}code9,-1,train.py,1,1".to_owned(), (1, 1)),
        (format!("{right}\r{right}\rcode9,-1,train.py,1,1\r"), (3, 1)),
        (format!("{right}\r\n\r\ncode1,é,train.py,1,1"), (3, 7)),
        (format!("{right}\n\"code1\",\"-\n1\",train.py,1,1"), (2, 9)),
    ] {
        let error = place.read(Header::None, &input).unwrap_err().remove(0);
        assert_eq!((error.line(), error.column()), wanted, "{input:?}");
        assert!(!error.render("x", Colour::Off).contains('\u{fffd}'), "{input:?}");
    }
}

#[test]
fn wrong_cells_of_further_columns_are_named_too() {
    let place = Place::new();
    let header = HEADER.trim_end();
    for (column, cell, wanted) in [
        ("Memory", "9", "`Memory`: `9` is not an amount of memory"),
        ("GPUs", "1.5", "`GPUs`: `1.5` is not"),
        ("Timeout", "soon", "`Timeout`: `soon` is not a length of time"),
        ("Retries", "-1", "`Retries`: `-1` is not a whole number from 0"),
        ("Name", "a b", "`a b` cannot be the name of a task"),
        ("Name", "twice", "an earlier task is already called `twice`"),
    ] {
        let taken = if column == "Name" { "twice" } else { "" };
        let row = "code1,-1,train.py,1,1";
        let found = place.problems(format!("{header},{column}\n{row},{taken}\n{row},{cell}"));
        assert_eq!(found.len(), 1, "{column}: {found:?}");
        assert_eq!((found[0].0, found[0].1), (3, 23), "{column}: {found:?}");
        assert!(found[0].2.contains(wanted), "{column}: {found:?}");
    }
}

#[test]
fn everything_that_is_wrong_is_said_at_once_and_in_order() {
    let place = Place::new();
    let input = format!("{HEADER}code9,-1,train.py,x,\ncode1,-1,train.py,1,1\ncode1,no,no,1,1\n");
    let found = place.problems(input);
    let places: Vec<_> = found.iter().map(|found| (found.0, found.1)).collect();
    assert_eq!(places, [(2, 1), (2, 19), (2, 21), (4, 7), (4, 10)]);
}

#[test]
fn a_file_of_nothing_but_mistakes_is_not_read_to_its_end() {
    let rows = "code9,-1,train.py,1,1\n".repeat(100_000);
    assert_eq!(Place::new().problems(format!("{HEADER}{rows}")).len(), 1000);
}

#[test]
fn a_wrong_header_is_the_only_thing_that_is_said() {
    let place = Place::new();
    for (input, wanted) in [
        ("", "there is no row 0 to be the header"),
        ("\n \n", "there is no row 0 to be the header"),
        ("code1,-1,train.py,1,1\n,,,x,", "does not name `Directory`, `Executable`"),
        ("Directory;Executable;Filename\na;b", "does not name `Directory`"),
        ("\u{feff}Directory,Executable,Filename,Epochs\na", "does not name `Priority`"),
        (
            "Directory,Executable,Filename,Epochs,Priority,epochs\na",
            "there are two columns `Epochs`",
        ),
        ("Directory,\"Executable,Filename\n", "this quote is never closed"),
    ] {
        let found = place.problems(input);
        assert!(found[0].2.contains(wanted), "{input:?}: {found:?}");
        assert!(found.iter().all(|found| found.0 <= 3), "{input:?}: {found:?}");
    }
    let utf16: Vec<u8> = "\u{feff}Dir".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert!(place.problems(utf16)[0].2.contains("not UTF-8"));
}

#[test]
fn the_hint_fits_what_was_probably_done() {
    let place = Place::new();
    let hint = |header, input: &str| place.read(header, input).unwrap_err()[0].hint();
    assert!(hint(Header::Row(0), "code1,-1,train.py,1,1").contains("--header None"));
    assert!(hint(Header::Row(0), "Directory;Epochs").contains("commas"));
    assert!(hint(Header::Row(0), "Directory,Epochs").contains("every file needs"));
    let folder = HEADER.replace("Directory", "code1").replace("Executable", "-1");
    let folder = folder.replace("Filename", "train.py");
    assert!(hint(Header::None, &folder).contains("this is the header"));
    assert!(hint(Header::None, "~/x,-1,train.py,1,1").contains("whole path"));
}

#[test]
fn an_unknown_column_is_a_warning() {
    let place = Place::new();
    let input = format!("Notes,{},Memroy\nx,code1,-1,train.py,1,1,9", HEADER.trim_end());
    let table = place.read(Header::Row(0), input).unwrap();
    assert_eq!(table.rows.len(), 1);
    let wanted = "\
warning: the column `Memroy` is not understood, and is ignored
 --> tasks.csv:1:53
  |
1 | Notes,Directory,Executable,Filename,Epochs,Priority,Memroy
  |                                                     ^^^^^^ ignored
  |
  = hint: did you mean `Memory`?";
    let shown: Vec<_> = table.warnings.iter().map(|w| w.render("tasks.csv", Colour::Off)).collect();
    assert_eq!(shown.len(), 2);
    assert_eq!(shown[1], wanted);
}

#[test]
fn a_misspelt_column_that_is_needed_is_named_with_what_was_meant() {
    let found =
        Place::new().read(Header::Row(0), "Directory,Executable,Filename,Epochs,Prioritty\n");
    let hints: Vec<String> = found.unwrap_err().iter().map(CsvError::hint).collect();
    assert_eq!(hints[1], "did you mean `Priority`?");
}

#[test]
fn an_error_quotes_the_row_and_says_what_to_do() {
    let input = format!("{HEADER}code1,-1,\"train\n.py\",1,1\n");
    let error = Place::new().read(Header::Row(0), input).unwrap_err().remove(0);
    let wanted = "\
error: there is no file `train`
 --> tasks.csv:2:10
  |
2 | code1,-1,\"train
  |          ^^^^^^ not found
  |
  = hint: a relative path starts from the row's Directory";
    assert_eq!(error.render("tasks.csv", Colour::Off), wanted);
}

#[test]
fn names_of_files_need_not_be_text() {
    let place = Place::new();
    let folder = place.0.path().join(OsStr::from_bytes(b"\xff"));
    fs_err::create_dir(&folder).unwrap();
    fs_err::write(folder.join("a.py"), "").unwrap();
    let table = place.read(Header::None, b"\xff,-1,a.py,1,1").unwrap();
    assert_eq!(table.rows[0].spec.folder, Some(folder));
}

#[test]
fn a_batch_is_sorted_by_priority_and_comes_before_the_next() {
    let rows: String =
        [3, 1, 3, 2, 0, 0, -5].map(|priority| format!("code1,-1,train.py,1,{priority}\n")).concat();
    let rows = Place::new().read(Header::None, rows).unwrap().rows;
    let turns = turns(&rows, NonZeroU32::new(3).unwrap());
    assert_eq!(turns, [1, 0, 2, 5, 3, 4, 6]);
}
