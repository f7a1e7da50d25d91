use std::io::Write as _;

use packhorse_core::{expected, reservation};
use packhorse_model::Exit;
use packhorse_store::{Forget, Home, LearnedSignature, Reader};
use serde_json::json;

use super::ls;
use super::table::table;
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
    let mut out = std::io::stdout().lock();
    if found.is_empty() && !args.json {
        if let Some(text) = &args.text {
            complain(&format!("nothing was learned of `{text}`"));
            return Ok(Exit::Success);
        }
        complain(
            "nothing was learned yet\n\
             hint: `packhorse run --vram auto` learns as it goes, `packhorse probe` measures one command",
        );
        return Ok(Exit::Success);
    }
    let mut lines = Vec::new();
    let mut shown = table(
        ["COMMAND", "GPU", "SEEN", "PEAK", "RESERVED", "TIME", "LAST"],
        &[2, 3, 4, 5],
    );
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
            reserved.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()),
            time.map_or_else(|| "-".to_owned(), wording::duration),
            ls::clock(learned.newest),
        ]);
    }
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&lines)?)?;
    } else {
        writeln!(out, "{shown}")?;
    }
    Ok(Exit::Success)
}

fn forget(home: &Home, args: &PeaksArgs, found: &[LearnedSignature]) -> anyhow::Result<Exit> {
    let gone = if args.text.is_none() {
        home.forget(Forget::All)?
    } else {
        let mut gone = 0;
        let mut last = None;
        for learned in found {
            if last != Some(&learned.signature) {
                gone += home.forget(Forget::Signature(&learned.signature))?;
                last = Some(&learned.signature);
            }
        }
        gone
    };
    complain(&format!(
        "forgot {}",
        wording::count(gone as u64, "measurement")
    ));
    Ok(Exit::Success)
}
