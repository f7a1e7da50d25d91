use std::time::Duration;

use packhorse_model::{
    ByteString, Bytes, Command, GpuRequest, Grace, Milli, Priority, TaskSpec, TimeLimit,
    VramRequest,
};
use proptest::prelude::*;

use super::*;
use crate::{Colour, Entry, TaskLanguage, TaskReader};

mod model;

fn read(separator: Separator, pieces: &[&[u8]]) -> Vec<Result<Entry, LineError>> {
    let mut lines = TaskReader::new(TaskLanguage::Lines(separator));
    let mut found = Vec::new();
    for piece in pieces {
        lines.push(piece);
        found.extend(lines.by_ref());
    }
    lines.finish();
    found.extend(lines);
    found
}

/// The command of an entry, which is a line.
fn command(entry: Entry) -> Vec<u8> {
    match entry.spec.command {
        Command::Line(line) => line,
        Command::Words(_) => panic!("not a line"),
    }
}

/// The specs of all entries without their commands; the input has no errors.
fn specs(input: &str) -> Vec<TaskSpec> {
    let found = read(Separator::Newline, &[input.as_bytes()]).into_iter();
    found.map(|entry| TaskSpec { command: Command::default(), ..entry.unwrap().spec }).collect()
}

/// Command and line of each entry; the input has no errors.
fn commands(input: &str) -> Vec<(String, u64)> {
    read(Separator::Newline, &[input.as_bytes()])
        .into_iter()
        .map(|entry| {
            let entry = entry.unwrap();
            let line = entry.line;
            (String::from_utf8(command(entry)).unwrap(), line)
        })
        .collect()
}

fn texts(input: &str) -> Vec<String> {
    commands(input).into_iter().map(|(text, _)| text).collect()
}

/// What is wrong, each with its line and column.
fn problems(input: &str) -> Vec<(u64, u64, String)> {
    read(Separator::Newline, &[input.as_bytes()])
        .into_iter()
        .filter_map(Result::err)
        .map(|error| {
            assert!(!error.hint().is_empty());
            (error.line(), error.column(), error.problem().to_string())
        })
        .collect()
}

#[test]
fn a_line_is_there_as_soon_as_its_newline_is() {
    let mut lines = TaskReader::new(TaskLanguage::Lines(Separator::Newline));
    lines.push(b"echo a");
    assert!(lines.next().is_none());
    assert_eq!(lines.buffered(), 6);
    lines.push(b"\necho b\nech");
    assert_eq!(command(lines.next().unwrap().unwrap()), b"echo a");
    assert_eq!(command(lines.next().unwrap().unwrap()), b"echo b");
    assert!(lines.next().is_none());
    assert_eq!(lines.buffered(), 3);
}

#[test]
fn blank_lines_and_comments_are_skipped_and_counted() {
    let input = "\n  \t\n# remark\n  # indented\na # b\n\r\nc";
    assert_eq!(commands(input), [("a # b".into(), 5), ("c".into(), 7)]);
}

#[test]
fn a_backslash_at_the_end_joins_the_next_line() {
    for (input, wanted) in [
        ("a \\\n  b\nc", vec![("a   b", 1), ("c", 3)]),
        ("a\\\nb", vec![("ab", 1)]),
        ("a\\\\\nb", vec![("a\\\\", 1), ("b", 2)]),
        ("a\\\\\\\nb", vec![("a\\\\b", 1)]),
        ("a \\\r\nb\r\n", vec![("a b", 1)]),
        ("a \\\n\nb", vec![("a", 1), ("b", 3)]),
        ("a \\\n# no comment\nb", vec![("a # no comment", 1), ("b", 3)]),
        ("# remark \\\nb", vec![("b", 2)]),
        ("\\\n  \\\nb", vec![("b", 3)]),
        ("\\\n# remark \\\nb", vec![("b", 3)]),
        ("a \\", vec![("a", 1)]),
        ("a \\\n", vec![("a", 1)]),
        ("\\", vec![]),
        ("\\\n", vec![]),
    ] {
        let wanted: Vec<_> = wanted.into_iter().map(|(t, l)| (t.to_owned(), l)).collect();
        assert_eq!(commands(input), wanted, "{input:?}");
    }
}

#[test]
fn blanks_around_a_command_go_unless_escaped() {
    for (input, wanted) in [
        (" \ta b\t ", "a b"),
        ("cd My\\ ", "cd My\\ "),
        ("cd My\\   ", "cd My\\ "),
        ("cd My\\\\ ", "cd My\\\\"),
        ("cd My\\ \\\n", "cd My\\ "),
        ("a\r", "a"),
        ("\u{feff}a", "a"),
    ] {
        assert_eq!(texts(input), [wanted], "{input:?}");
    }
}

#[test]
fn a_nul_spoils_its_own_command_only() {
    let input = "a\nb\0c\n# \0 in a remark\n#packhorse cores=2\nd \\\n é \0\nf\n";
    let found = read(Separator::Newline, &[input.as_bytes()]);
    assert_eq!(
        problems(input),
        [
            (2, 2, "a command cannot contain a NUL byte".into()),
            (6, 4, "a command cannot contain a NUL byte".into())
        ]
    );
    let good: Vec<Entry> = found.into_iter().filter_map(Result::ok).collect();
    assert_eq!(good.len(), 2);
    let f = TaskSpec::new(Command::Line(b"f".to_vec()));
    assert_eq!(good[1].spec, f, "the directive was for d");
}

#[test]
fn null_separated_items_are_taken_exactly_as_they_are() {
    let input: &[u8] = b" a\n# b \\\n\0\n \0#packhorse x\0c\xff";
    let found: Vec<_> = read(Separator::Null, &[input])
        .into_iter()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.line, command(entry)))
        .collect();
    assert_eq!(
        found,
        [(1, b" a\n# b \\\n".to_vec()), (4, b"#packhorse x".to_vec()), (4, b"c\xff".to_vec())]
    );
}

#[test]
fn a_directive_counts_for_the_next_command_only() {
    let input = "\
#packhorse name=prep
a
#packhorse gpus=0.5 cores=2\tpriority=-3

# a remark between
  #packhorse retries=2 timeout=2h after=prep name=other
b
c
#packhorse after=prep,other after=prep
d
";
    let found = specs(input);
    let b = TaskSpec {
        gpus: Some(GpuRequest::Share(Milli(500))),
        cores: Some(2),
        priority: Some(Priority(-3)),
        retries: Some(2),
        timeout: Some(TimeLimit::After(Duration::from_hours(2))),
        name: Some("other".into()),
        after: vec!["prep".into()],
        ..TaskSpec::default()
    };
    assert_eq!(found.len(), 4);
    assert_eq!(found[0].name.as_deref(), Some("prep"));
    assert_eq!(found[1], b);
    assert_eq!(found[2], TaskSpec::default());
    assert_eq!(found[3].after, ["other", "prep"]);
}

#[test]
fn a_directive_says_what_the_memory_and_the_cores_should_be() {
    let input = "\
#packhorse vram=9G signature=resnet/50 ram=1.5G
#packhorse cpu=1.5 model=A100,H100
a
#packhorse vram=auto
b
#packhorse vram=measure timeout=never
c
";
    let found = specs(input);
    let a = TaskSpec {
        vram: Some(VramRequest::Bytes(Bytes(9 << 30))),
        signature: Some("resnet/50".into()),
        ram: Some(Bytes(3 << 29)),
        cpu: Some(Milli(1500)),
        gpu_model: Some("A100,H100".into()),
        ..TaskSpec::default()
    };
    assert_eq!(found[0], a);
    assert_eq!(found[1].vram, Some(VramRequest::Auto));
    assert_eq!(found[2].vram, Some(VramRequest::Measure));
    assert_eq!(found[2].timeout, Some(TimeLimit::Never));
}

#[test]
fn a_directive_says_where_and_with_what_environment_it_runs() {
    let input = "\
#packhorse folder=../code results=out/1 log=b.log grace=30s
#packhorse env=SEED=1 env=FLAGS=--a=b env=EMPTY=
a
";
    let variables = [("SEED", "1"), ("FLAGS", "--a=b"), ("EMPTY", "")];
    let variables = variables.map(|(name, value)| (name.to_owned(), ByteString::from(value)));
    let a = TaskSpec {
        folder: Some("../code".into()),
        results: Some("out/1".into()),
        log: Some("b.log".into()),
        grace: Some(Grace(Duration::from_secs(30))),
        env: variables.into(),
        ..TaskSpec::default()
    };
    assert_eq!(specs(input), [a]);
}

#[test]
fn wrong_directives_are_named_by_line_and_column() {
    let too_long = format!("#packhorse signature={}\na", "x".repeat(201));
    for (input, column, wanted) in [
        ("#packhorse vram=9\na", 17, "an amount of memory"),
        ("#packhorse ram=much\na", 16, "an amount of memory"),
        ("#packhorse cpu=two\na", 16, "`two` is not a number of cores"),
        ("#packhorse signature=\na", 22, "cannot be a signature"),
        (&too_long, 22, "cannot be a signature"),
        ("#packhorse model=A100,,H100\na", 18, "missing a name"),
        ("#packhorse model=a model=b\na", 20, "given twice"),
        ("#packhorse vram=1G vram=2G\na", 20, "given twice"),
        ("#packhorse grace=0\na", 18, "a length of time"),
        ("#packhorse folder=\na", 19, "`folder` is empty"),
        ("#packhorse log=a\0b\na", 16, "`log` contains a NUL byte"),
        ("#packhorse log=a log=b\na", 18, "given twice"),
        ("#packhorse env=A\na", 16, "NAME=VALUE"),
        ("#packhorse env==1\na", 16, "name of an environment variable"),
        ("#packhorse env=A=\0\na", 16, "`env` contains a NUL byte"),
        ("#packhorse env=A=1 env=A=2\na", 20, "the variable `A` is given twice"),
        ("#packhorse gpu=1\na", 12, "there is no option `gpu`"),
        ("#packhorse gpus=1.5\na", 17, "`gpus`: `1.5` is not"),
        ("  #packhorse cores=-1\na", 20, "`-1` is not a whole number from 0"),
        ("#packhorse priority=x\na", 21, "from -2147483648 to 2147483647"),
        ("#packhorse retries=9999999999\na", 20, "from 0 to 4294967295"),
        ("#packhorse timeout=soon\na", 20, "a length of time"),
        ("#packhorse name=a,b\na", 17, "cannot be the name"),
        ("#packhorse name=\na", 17, "cannot be the name"),
        ("#packhorse after=ghost\na", 18, "no earlier task is called `ghost`"),
        ("#packhorse name=a after=a\na", 25, "no earlier task is called `a`"),
        ("#packhorse gpus\na", 12, "KEY=VALUE"),
        ("#packhorse cores=1 \\\na", 20, "KEY=VALUE"),
        ("#packhorse gpus=1 gpus=2\na", 19, "given twice"),
        ("#packhorse\na", 1, "sets nothing"),
        ("#packhorse  \na", 1, "sets nothing"),
        ("#packhorse: gpus=1\na", 1, "starts with `#packhorse`"),
        ("#PACKHORSE gpus=1\na", 1, "starts with `#packhorse`"),
        ("#packhorse gpu=1", 12, "there is no option `gpu`"),
        ("#packhorse gpus=1", 1, "no command comes after"),
        ("#packhorse gpus=1\n# end\n\n", 1, "no command comes after"),
    ] {
        let found = problems(input);
        assert_eq!(found.len(), 1, "{input:?}: {found:?}");
        assert_eq!((found[0].0, found[0].1), (1, column), "{input:?}");
        assert!(found[0].2.contains(wanted), "{input:?}: {found:?}");
    }
}

#[test]
fn a_remark_about_packhorse_is_no_directive() {
    for remark in [
        "# packhorse is run below",
        "# packhorse run --gpus=0,1 jobs.txt",
        "# Packhorse: sweep with lr=0.1",
        "#packhorses eat=hay",
        "#Packhorse is fine",
    ] {
        assert_eq!(texts(&format!("{remark}\na")), ["a"], "{remark}");
    }
}

#[test]
fn a_command_with_a_wrong_directive_is_held_back_and_the_others_go_on() {
    let input = "a\n#packhorse gpu=1 cores=x\nb\n#packhorse name=n\nc\n#packhorse name=n\nd\ne";
    let found = read(Separator::Newline, &[input.as_bytes()]);
    let good = found.into_iter().filter_map(Result::ok);
    let good: Vec<Vec<u8>> = good.map(command).collect();
    assert_eq!(good, [b"a", b"c", b"e"]);
    let lines: Vec<u64> = problems(input).iter().map(|problem| problem.0).collect();
    assert_eq!(lines, [2, 2, 6]);
}

#[test]
fn an_error_quotes_its_line_and_says_what_to_do() {
    let found = read(Separator::Newline, &[b"a\n#packhorse cores=2 retrys=3\nb"]);
    let error = found.into_iter().find_map(Result::err).unwrap();
    let wanted = "\
error: there is no option `retrys`
 --> jobs.txt:2:20
  |
2 | #packhorse cores=2 retrys=3
  |                    ^^^^^^ unknown option
  |
  = hint: did you mean `retries`?";
    assert_eq!(error.render("jobs.txt", Colour::Off), wanted);
    assert_eq!(
        error.to_string(),
        "line 2, column 20: there is no option `retrys`\nhint: did you mean `retries`?"
    );
}

#[test]
fn names_stay_known_in_the_next_source_and_lines_start_again() {
    let mut lines = TaskReader::new(TaskLanguage::Lines(Separator::Newline));
    lines.push(b"\n#packhorse name=prep\na");
    lines.finish();
    assert_eq!(lines.next().unwrap().unwrap().line, 3);
    assert!(lines.next().is_none());
    lines.next_source();
    lines.push(b"#packhorse after=prep\nb\n");
    let entry = lines.next().unwrap().unwrap();
    assert_eq!((entry.line, entry.spec.after), (2, vec!["prep".into()]));
}

#[test]
fn the_memory_of_a_giant_line_is_given_back() {
    let mut lines = TaskReader::new(TaskLanguage::Lines(Separator::Newline));
    let chunk = vec![b'x'; 64 << 10];
    for _ in 0..256 {
        lines.push(&chunk);
        assert!(lines.next().is_none());
    }
    assert_eq!(lines.buffered(), 16 << 20);
    lines.push(b"\nsmall\nrest");
    assert_eq!(command(lines.next().unwrap().unwrap()).len(), 16 << 20);
    assert_eq!(command(lines.next().unwrap().unwrap()), b"small");
    assert!(lines.next().is_none());
    assert_eq!(lines.buffered(), 4);
    assert!(lines.capacity() <= 256 << 10, "{}", lines.capacity());
}

/// If every push searched the line again, this would look at 2^41 bytes.
#[test]
fn a_giant_line_in_many_pieces_is_searched_once() {
    let mut lines = TaskReader::new(TaskLanguage::Lines(Separator::Newline));
    for _ in 0..1 << 20 {
        lines.push(b"xxxx");
        assert!(lines.next().is_none());
    }
    lines.push(b"\n");
    assert_eq!(command(lines.next().unwrap().unwrap()).len(), 4 << 20);
}

#[test]
fn a_million_mistakes_in_one_line_are_not_all_reported() {
    let input = format!("#packhorse{}\na", " x".repeat(1_000_000));
    assert_eq!(problems(&input).len(), 8);
}

fn input() -> impl Strategy<Value = Vec<u8>> {
    let fragments = [
        "a",
        "b c",
        " ",
        "\t",
        "\n",
        "\n",
        "\r\n",
        "\r",
        "\\",
        "\\",
        "\\\n",
        "\\ ",
        "#",
        "# x",
        "'",
        "\"",
        "é",
        "\0",
        "\u{feff}",
        "#packhorse ",
        "gpus=1",
        "name=n",
        "after=n",
        "\n#",
    ];
    let fragment = prop::sample::select(fragments.to_vec()).prop_map(|f| f.as_bytes().to_vec());
    let byte = any::<u8>().prop_map(|b| vec![b]);
    let piece = prop_oneof![20 => fragment, 1 => byte];
    prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn lines_agree_with_the_slow_and_obvious_model(input in input()) {
        // The model knows no directives.
        let text = String::from_utf8_lossy(&input).replace("#packhorse", "#ph");
        let found: Vec<_> = read(Separator::Newline, &[text.as_bytes()])
            .into_iter()
            .map(|found| {
                let entry = found.map_err(|error| error.line())?;
                let line = entry.line;
                Ok((command(entry), line))
            })
            .collect();
        prop_assert_eq!(found, model::lines(text.as_bytes()));
    }

    #[test]
    fn it_does_not_matter_how_the_bytes_are_cut(
        input in input(), cuts in prop::collection::vec(0_usize..60, 0..8), null: bool
    ) {
        let separator = if null { Separator::Null } else { Separator::Newline };
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(input.len())).collect();
        cuts.extend([0, input.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &input[w[0]..w[1]]).collect();
        prop_assert_eq!(read(separator, &pieces), read(separator, &[&input]));
    }
}

#[test]
fn a_line_beyond_all_measure_is_refused_and_takes_no_memory() {
    for (start, end) in [("", "\n"), ("#packhorse cores=2\n", "\n"), ("a \\\n", " \\\nb\n")] {
        let mut lines = TaskReader::new(TaskLanguage::Lines(Separator::Newline));
        lines.push(start.as_bytes());
        assert!(lines.next().is_none());
        for _ in 0..40 {
            lines.push(&vec![b'x'; 1 << 20]);
            assert!(lines.next().is_none());
        }
        assert!(lines.capacity() < 40 << 20);
        lines.push(format!("{end}next\n").as_bytes());
        let error = lines.next().unwrap().unwrap_err();
        assert_eq!(*error.problem(), LineProblem::TooLong);
        let rest: Vec<_> = lines.by_ref().map(|entry| entry.unwrap().spec.command).collect();
        assert_eq!(rest.last(), Some(&Command::Line(b"next".to_vec())));
    }
}
