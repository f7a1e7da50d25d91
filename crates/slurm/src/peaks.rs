//! What was learned of commands' GPU memory goes to the nodes with a run, and comes back
//! with it.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write as _};

use fs_err::File;
use packhorse_engine::LearnedPeaks;
use packhorse_model::LearnedPeak;
use packhorse_store::Reader;
use serde::{Deserialize, Serialize};

use crate::SlurmError;
use crate::folder::{SharedFolder, json};

/// The file of what was known when the run was submitted.
const KNOWN: &str = "peaks.jsonl";

/// What was learned of commands with a signature on a model of GPU.
#[derive(Debug, Serialize, Deserialize)]
struct KnownPeaks {
    signature: String,
    model: String,
    peaks: Vec<LearnedPeak>,
}

/// Writes down all that is known.
pub(crate) fn write_known_peaks(reader: &Reader, folder: &SharedFolder) -> Result<(), SlurmError> {
    let mut file = BufWriter::new(File::create(folder.file(KNOWN))?);
    let mut signatures: Vec<String> =
        reader.signatures()?.into_iter().map(|it| it.signature).collect();
    signatures.sort_unstable();
    signatures.dedup();
    for signature in signatures {
        for (model, peaks) in reader.peaks(&signature)? {
            let signature = signature.clone();
            writeln!(file, "{}", json(&KnownPeaks { signature, model, peaks }))?;
        }
    }
    Ok(file.flush()?)
}

/// What is known on a node.
#[derive(Debug, Default)]
pub(crate) struct PeakBook(BTreeMap<String, BTreeMap<String, Vec<LearnedPeak>>>);

impl PeakBook {
    /// What was known when the run was submitted.
    pub(crate) fn read(folder: &SharedFolder) -> Result<Self, SlurmError> {
        let mut book = Self::default();
        for known in folder.lines::<KnownPeaks>(KNOWN)? {
            let models = book.0.entry(known.signature).or_default();
            models.entry(known.model).or_default().extend(known.peaks);
        }
        Ok(book)
    }

    /// What was learned of commands with this signature, or of this family.
    pub(crate) fn of(&self, signature: &str) -> LearnedPeaks {
        let mut found = LearnedPeaks::new();
        // Members of a family have details in brackets behind its name.
        let members = self.0.range(format!("{signature} [")..format!("{signature} \\"));
        let own = self.0.get_key_value(signature);
        for (name, models) in members.chain(own) {
            found.insert(name.clone(), models.clone());
        }
        found
    }
}
