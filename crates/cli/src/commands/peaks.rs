use std::io::Write;

use anyhow::bail;
use comfy_table::ColumnConstraint;
use packhorse_core::{expected, reservation};
use packhorse_model::{Exit, PeakOrigin};
use packhorse_store::{Forget, Home, LearnedSignature, Reader};
use serde_json::json;

use super::ls;
use super::table::{fits, print_json, print_table, table};
use crate::args::PeaksArgs;
use crate::stdout::stdout;
use crate::{complain, terminal, wording};

/// `packhorse peaks`
pub fn peaks(args: &PeaksArgs) -> anyhow::Result<Exit> {
    let home = Home::locate()?;
    let reader = Reader::open(&home)?;
    let mut found = reader.signatures()?;
    if args.forget && args.text.as_deref() == Some("") {
        bail!(
            "nothing was named, so nothing is forgotten\nhint: `packhorse peaks --forget --all` forgets everything"
        );
    }
    if let Some(text) = &args.text {
        found.retain(|learned| learned.signature.contains(text) || learned.model.contains(text));
    }
    if args.forget {
        return forget(&home, args, &found);
    }
    if found.is_empty() && !args.json {
        complain(&match &args.text {
            Some(text) => format!("nothing was learned of `{text}`"),
            None => "nothing was learned yet\n\
                     hint: `packhorse run --vram auto` learns as it goes, \
                     `packhorse probe` measures one command"
                .to_owned(),
        });
        return Ok(Exit::Success);
    }
    let mut lines = Vec::new();
    let mut late = Vec::new();
    let header = "COMMAND  GPU  SEEN  PEAK  RESERVED  TIME  LAST";
    let mut shown = table(header, &[2, 3, 4, 5]);
    for learned in &found {
        let samples = reader.peaks(&learned.signature)?;
        let samples = samples.get(&learned.model).map_or(&[][..], Vec::as_slice);
        let (reserved, time) = (reservation(samples.iter()), expected(samples.iter()));
        let mut origins = samples.iter().map(|sample| sample.origin);
        let grew_late =
            origins.any(|origin| matches!(origin, PeakOrigin::GrewLate | PeakOrigin::Growing));
        if grew_late {
            late.push(&learned.signature);
        }
        lines.push(json!({
            "signature": learned.signature,
            "model": learned.model,
            "samples": learned.peaks,
            "peak": learned.highest.0,
            "reserved": reserved.map(|bytes| bytes.0),
            "expected_seconds": time.map(|time| time.as_secs_f64()),
            "grew_late": grew_late,
            "last": learned.newest,
        }));
        shown.add_row([
            wording::clipped(&learned.signature, 60).into_owned(),
            learned.model.clone(),
            learned.peaks.to_string(),
            learned.highest.to_string(),
            wording::or_dash(reserved),
            wording::or_dash(time.map(wording::duration)),
            ls::clock(learned.newest),
        ]);
    }
    if args.json {
        return print_json(&lines.into());
    }
    let mut out = stdout();
    if fits(&shown) {
        print_table(&mut out, &shown)?;
    } else {
        print_in_two_lines(&mut out, shown, &found)?;
    }
    late.dedup();
    for signature in late {
        let signature = wording::printable(signature);
        let line = format!("grew late, after its memory had rested: {signature}");
        writeln!(out, "{}", wording::clipped(&line, terminal::line_width()))?;
    }
    Ok(Exit::Success)
}

/// Each command has a line of its own.
fn print_in_two_lines(
    out: &mut impl Write,
    mut shown: comfy_table::Table,
    found: &[LearnedSignature],
) -> anyhow::Result<()> {
    if let Some(command) = shown.column_mut(0) {
        command.set_constraint(ColumnConstraint::Hidden);
    }
    let mut numbers = shown.lines();
    let width = terminal::line_width();
    let commands = found.iter().map(|learned| &*learned.signature);
    for (line, command) in numbers.by_ref().zip([""].into_iter().chain(commands)) {
        if !command.is_empty() {
            let command = wording::printable(command);
            writeln!(out, "{}", wording::clipped(&command, width))?;
        }
        let line = format!("  {}", wording::printable(line.trim_end()));
        writeln!(out, "{}", wording::clipped(&line, width))?;
    }
    Ok(())
}

fn forget(home: &Home, args: &PeaksArgs, found: &[LearnedSignature]) -> anyhow::Result<Exit> {
    let mut gone = 0;
    if args.all {
        gone = home.forget(Forget::All)?;
    } else if args.text.is_none() {
        bail!(
            "what is to be forgotten?\n\
             hint: `packhorse peaks TEXT --forget` forgets the commands that contain the text, \
             `packhorse peaks --forget --all` everything"
        );
    } else {
        // A second time, for another model, there is nothing left to forget.
        for learned in found {
            gone += home.forget(Forget::Signature(&learned.signature))?;
        }
    }
    if args.json {
        return print_json(&json!({ "forgotten": gone }));
    }
    complain(&format!("forgot {}", wording::count(gone as u64, "measurement")));
    Ok(Exit::Success)
}
