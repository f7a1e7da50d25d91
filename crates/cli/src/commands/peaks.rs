use std::io::Write as _;

use anyhow::bail;
use packhorse_core::{expected, reservation};
use packhorse_model::Exit;
use packhorse_store::{Forget, Home, LearnedSignature, Reader};
use serde_json::json;

use super::ls;
use super::table::{print_json, table};
use crate::args::PeaksArgs;
use crate::{complain, wording};

/// `packhorse peaks`
pub fn peaks(args: &PeaksArgs) -> anyhow::Result<Exit> {
    let home = Home::locate()?;
    let reader = Reader::open(&home)?;
    let mut found = reader.signatures()?;
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
    let header = "COMMAND  GPU  SEEN  PEAK  RESERVED  TIME  LAST";
    let mut shown = table(header, &[2, 3, 4, 5]);
    for learned in &found {
        let samples = reader.peaks(&learned.signature)?;
        let samples = samples.get(&learned.model).map_or(&[][..], Vec::as_slice);
        let (reserved, time) = (reservation(samples.iter()), expected(samples.iter()));
        lines.push(json!({
            "signature": learned.signature,
            "model": learned.model,
            "samples": learned.peaks,
            "peak": learned.highest.0,
            "reserved": reserved.map(|bytes| bytes.0),
            "expected_seconds": time.map(|time| time.as_secs_f64()),
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
    writeln!(std::io::stdout(), "{shown}")?;
    Ok(Exit::Success)
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
    complain(&format!(
        "forgot {}",
        wording::count(gone as u64, "measurement")
    ));
    Ok(Exit::Success)
}
