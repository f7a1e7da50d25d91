//! What single tasks ask for, as far as it is known before anything starts.

use packhorse_intake::lines::Options;
use packhorse_model::Models;
use packhorse_runner::{Defaults, Places, first_request, models_named, refusal};

use super::mistakes::Mistakes;
use super::pool::unknown_model;

/// What tasks of files ask for themselves, each different wish once.
#[derive(Default)]
pub struct Wishes(Vec<Wish>);

struct Wish {
    source: String,
    /// Where it was met first.
    line: u64,
    /// What matters for where a task may run.
    options: Options,
}

impl Wishes {
    /// Takes note of what the task at a line asks for.
    pub fn note(&mut self, source: &str, line: u64, options: &Options) {
        let options = Options {
            gpus: options.gpus,
            vram: options.vram,
            models: options.models.clone(),
            cores: options.cores,
            cpu: options.cpu,
            ram: options.ram,
            ..Options::default()
        };
        let plain = options == Options::default();
        if plain || self.0.iter().any(|wish| wish.options == options) {
            return;
        }
        self.0.push(Wish {
            source: source.to_owned(),
            line,
            options,
        });
    }

    /// Says which of them can never be met.
    pub fn check(&self, places: &Places, defaults: &Defaults) -> anyhow::Result<()> {
        let mut mistakes = Mistakes::default();
        for wish in &self.0 {
            if let Some(reason) = wish.refusal(places, defaults)? {
                let Wish { source, line, .. } = wish;
                mistakes.tell(|| {
                    format!("error: {source}:{line}: this task could never run: {reason}")
                });
            }
        }
        mistakes.refuse("nothing was started")
    }
}

impl Wish {
    fn refusal(&self, places: &Places, defaults: &Defaults) -> anyhow::Result<Option<String>> {
        let request = first_request(places, defaults, &self.options);
        if self.options.vram.is_some() && request.gpus.devices() == 0 {
            return Ok(Some(
                "it asks for GPU memory (vram), but for no GPU".to_owned(),
            ));
        }
        let names = self.options.models.join(",");
        let unknown = !names.is_empty() && models_named(&places.about, &names) == Models(0);
        if unknown && request.gpus.devices() > 0 {
            return Ok(Some(unknown_model(&places.about, &names)));
        }
        Ok(refusal(places, &request)?.map(|reason| reason.to_string()))
    }
}
