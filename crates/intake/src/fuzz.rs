//! What the fuzzer calls, with any bytes. Each also checks what must hold of
//! every input, so that a crash is not the only thing it can find.

use std::io;

use crate::Colour;
use crate::lines::{Entry, LineError, Lines, Separator};
use crate::sweep::{Order, Parameter, Sweep, SweepError, Template};

/// Lines give the same result however the bytes were cut.
pub fn lines(data: &[u8]) {
    for separator in [Separator::Newline, Separator::Null] {
        let whole = read(separator, [data]);
        let cut = usize::from(data.first().copied().unwrap_or(0)) % 7 + 1;
        let pieces = read(separator, data.chunks(cut));
        assert_eq!(whole, pieces, "cut into {cut}");
        for found in whole {
            match found {
                Ok(entry) => assert!(!entry.command.is_empty() && entry.line > 0),
                Err(error) => {
                    let message = error.render("jobs.txt", Colour::Off);
                    assert!(message.contains("jobs.txt") && !message.contains('\0'));
                }
            }
        }
    }
}

fn read<'a>(
    separator: Separator,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<Result<Entry, LineError>> {
    let mut lines = Lines::new(separator);
    let mut found = Vec::new();
    for piece in pieces {
        lines.push(piece);
        found.extend(lines.by_ref());
    }
    lines.finish();
    found.extend(lines.by_ref());
    assert_eq!(lines.buffered(), 0);
    assert!(lines.next().is_none());
    found
}

/// The first line is a template, each other one a parameter with its values:
/// a sweep is refused with a message, or its parts agree.
pub fn sweep(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let seed = data.len() as u64;
    for order in [Order::Grid, Order::Shuffled { seed }] {
        match built(&text, order) {
            Ok(sweep) => check(&sweep),
            Err(SweepError::Template(error)) => {
                let message = error.render("template", Colour::On);
                assert!(message.contains("template"));
            }
            Err(error) => assert!(error.to_string().contains("hint: ")),
        }
    }
}

fn built(text: &str, order: Order) -> Result<Sweep, SweepError> {
    let mut lines = text.split('\n');
    let template = Template::parse(lines.next().unwrap_or_default())?;
    let mut builder = Sweep::builder(template)
        .order(order)
        .limit(50)
        .allow_unused();
    for line in lines {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let values: Vec<&str> = words.collect();
        if name == "--zip" {
            builder = builder.zip(values);
        } else {
            builder = builder.parameter(Parameter::parse(name, &values)?);
        }
    }
    builder.build()
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
