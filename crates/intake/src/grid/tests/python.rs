//! Python's own `str` beside ours.

use std::collections::BTreeMap;
use std::process::Command;

use packhorse_test_parts::needs;

use super::super::config::SchedulerConfig;
use super::super::literal::read_python;
use super::super::names::{FolderNames, Places};
use super::super::print::{is_printable, python_str};
use super::super::unprintable::UNICODE;
use super::super::value::ValueKind;

/// What `python3` prints when it runs this program.
fn python(program: &str, arguments: &[&str]) -> String {
    let output = Command::new("python3")
        .args(["-c", program])
        .args(arguments)
        .env("PYTHONIOENCODING", "utf-8")
        .output()
        .expect("the tests need python3");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// A single test whose parameters have one value each.
struct One(usize);

impl Places for One {
    fn len(&self) -> u32 {
        1
    }

    fn digits(&self, _: u32, digits: &mut Vec<usize>) -> usize {
        *digits = vec![0; self.0];
        0
    }

    fn identity(&self, _: u32) -> String {
        String::new()
    }
}

#[test]
fn values_print_and_folders_are_called_as_python_does_it() {
    needs!(Python);
    let printed = python(include_str!("beside.py"), &["11", "6000"]);
    let mut lines = printed.lines();
    lines.next();
    let mut count = 0;
    for line in lines {
        let (source, wanted, name): (String, BTreeMap<String, String>, String) =
            serde_json::from_str(line).unwrap();
        let read = read_python(&format!("config = {source}"));
        let read = read.unwrap_or_else(|error| panic!("{source}\n{error}"));
        let ValueKind::Dict(members) = &read.kind else {
            panic!("{source}");
        };
        let printed: BTreeMap<String, String> =
            members.iter().map(|(key, value)| (python_str(key), python_str(value))).collect();
        assert_eq!(printed, wanted, "{source}");
        let block =
            members.iter().map(|(key, value)| (python_str(key), vec![value.clone()])).collect();
        let names = FolderNames::new(&SchedulerConfig::default(), &[block]);
        let made = names.original(&One(members.len()), 0);
        assert_eq!(made, name, "{source}");
        count += members.len();
    }
    assert!(count > 10_000);
}

#[test]
fn what_is_printable_is_what_python_says() {
    needs!(Python);
    let program = "import unicodedata, sys\n\
        print(unicodedata.unidata_version)\n\
        print(''.join('01'[chr(c).isprintable()] for c in range(0x110000)))\n\
        old = unicodedata.ucd_3_2_0\n\
        print(''.join('01'[old.category(chr(c)) != 'Cn'] for c in range(0x110000)))";
    let printed = python(program, &[]);
    let lines: Vec<&str> = printed.lines().collect();
    let [version, printable, known] = lines[..] else {
        panic!("three lines");
    };
    let bytes = printable.bytes().zip(known.bytes()).zip(0_u32..);
    for ((printable, known), code) in bytes {
        // Other versions of Unicode have more characters; none has fewer than that of 2002.
        let Some(c) = char::from_u32(code).filter(|_| version == UNICODE || known == b'1') else {
            continue;
        };
        assert_eq!(is_printable(c), printable == b'1', "U+{code:04X}");
    }
}
