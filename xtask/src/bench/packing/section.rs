use anyhow::Result;

use super::{mixes, openb, speed, synthetic};
use crate::bench::environment::BenchEnvironment;
use crate::bench::report::Section;

pub fn measure(bench: &BenchEnvironment) -> Result<Section> {
    let mut section = Section::new("packing: how full GPUs get");
    openb::measure(bench, &mut section)?;
    mixes::measure(bench, &mut section)?;
    speed::measure(bench, &mut section)?;
    synthetic::measure(bench, &mut section)?;
    Ok(section)
}
