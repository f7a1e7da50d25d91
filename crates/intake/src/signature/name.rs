//! What the name of a flag or a variable says about its value.

use std::collections::HashSet;
use std::sync::LazyLock;

use super::text::words;

/// What becomes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Numbers go, texts stay.
    Other,
    /// Whole numbers stay too: they decide memory.
    Size,
    /// Texts stay as they are: they name a configuration, which says all the rest.
    Config,
    /// It always goes: it only labels the run, or says where it writes.
    Label,
}

/// Parts of names that say how large something is.
static SIZES: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    words(
        "b batch batches batchsize beam beams bits block blocks bs channels chunk context crop \
         ctx depth dim dims emb embd embed embedding experts features filters frames head heads \
         height hidden image img imgsz layer layers len length lora model ndf neurons ngf nproc \
         patch points precision res resolution seq seqlen sequence size token tokens units vocab \
         width window",
    )
});

/// Parts of names that say that a configuration is chosen.
const CONFIGS: [&str; 8] =
    ["cfg", "conf", "config", "configs", "hparams", "preset", "recipe", "yaml"];

/// Whole names of labels, places to write, seeds and ports.
static LABELS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    words(
        "checkpoint_dir ckpt_dir comment cuda_visible_devices date desc description exp exp_id \
         exp_name experiment experiment_id experiment_name expname gpu gpu_id gpu_ids gpus group \
         id job_name local_rank log log_dir log_file log_path logdir logfile master_addr \
         master_port name note notes o out out_dir out_path outdir output output_dir output_path \
         port project random_seed rdzv_endpoint rdzv_id result_dir results results_dir run run_id \
         run_name save save_dir save_path save_to savedir seed tag tags tb_dir tensorboard_dir \
         timestamp trial trial_id trial_name work_dir workdir",
    )
});

/// First parts of names that all concern the keeping of records.
const RECORDS: [&str; 2] = ["hydra", "wandb"];

impl Meaning {
    /// Of `--batch-size`, `batchSize`, `model.layers` or `BATCH_SIZE`.
    pub fn of(name: &str) -> Self {
        let parts = parts(name);
        let first = parts.first().map_or("", String::as_str);
        if LABELS.contains(parts.join("_").as_str()) || RECORDS.contains(&first) {
            Self::Label
        } else if parts.iter().any(|part| CONFIGS.contains(&part.as_str())) {
            Self::Config
        } else if parts.iter().any(|part| SIZES.contains(part.as_str())) {
            Self::Size
        } else {
            Self::Other
        }
    }
}

/// Whether what a variable of this name has for a value is nobody else's business.
pub(super) fn is_secret(name: &str) -> bool {
    let last = parts(name).pop().unwrap_or_default();
    matches!(last.as_str(), "key" | "password" | "secret" | "token")
}

/// The words that a name is made of, in lower case.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (was_lower && c.is_uppercase()) {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut().filter(|_| c.is_alphanumeric()) {
            part.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase();
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_sizes_and_labels_from_the_rest() {
        for (name, wanted) in [
            ("--batch-size", Meaning::Size),
            ("batchSize", Meaning::Size),
            ("BATCH_SIZE", Meaning::Size),
            ("per_device_train_batch_size", Meaning::Size),
            ("-b", Meaning::Size),
            ("model.num_layers", Meaning::Size),
            ("--d-model", Meaning::Size),
            ("--nproc_per_node", Meaning::Size),
            ("--lr", Meaning::Other),
            ("--num-workers", Meaning::Other),
            ("--epochs", Meaning::Other),
            ("model_name", Meaning::Size),
            ("--model-config", Meaning::Config),
            ("--config-name", Meaning::Config),
            ("--output-dir", Meaning::Label),
            ("--outputDir", Meaning::Label),
            ("seed", Meaning::Label),
            ("WANDB_NAME", Meaning::Label),
            ("hydra.run.dir", Meaning::Label),
            ("", Meaning::Other),
            ("--", Meaning::Other),
        ] {
            assert_eq!(Meaning::of(name), wanted, "{name}");
        }
    }
}
