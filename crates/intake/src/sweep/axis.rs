//! Parameters that advance together, and the order in which they do.

use super::error::SweepError;
use super::parameter::Parameter;
use crate::excerpt::quoted;
use crate::nearest::nearest;

/// One direction of the grid: a parameter, or several that are zipped.
#[derive(Clone, Debug)]
pub(super) struct SweepAxis {
    /// Which parameters, by their place in the list.
    pub members: Vec<usize>,
    pub len: u128,
}

/// The axes, slowest first. Zipped parameters stand at the place of the first.
pub(super) fn axes(
    parameters: &[Parameter],
    zips: &[Vec<String>],
) -> Result<Vec<SweepAxis>, SweepError> {
    let mut zip_of: Vec<Option<usize>> = vec![None; parameters.len()];
    for (zip, names) in zips.iter().enumerate() {
        if names.len() < 2 {
            return Err(SweepError::ZipOfOne);
        }
        for name in names {
            let known = || parameters.iter().map(Parameter::name);
            let Some(member) = known().position(|known| known == name) else {
                return Err(SweepError::UnknownZip {
                    name: quoted(name.as_bytes()),
                    nearest: nearest(name, known()).map(str::to_owned),
                });
            };
            if zip_of[member].replace(zip).is_some() {
                return Err(SweepError::ZippedTwice(quoted(name.as_bytes())));
            }
        }
    }

    let mut axes: Vec<SweepAxis> = Vec::new();
    let mut axis_of_zip: Vec<Option<usize>> = vec![None; zips.len()];
    for (member, parameter) in parameters.iter().enumerate() {
        if let Some(axis) = zip_of[member].and_then(|zip| axis_of_zip[zip]) {
            axes[axis].members.push(member);
            continue;
        }
        if let Some(zip) = zip_of[member] {
            axis_of_zip[zip] = Some(axes.len());
        }
        axes.push(SweepAxis { members: vec![member], len: parameter.len() });
    }
    for axis in &axes {
        let members = axis.members.iter().map(|&member| &parameters[member]);
        if members.clone().any(|member| member.len() != axis.len) {
            let lengths = members.map(|member| (member.quoted_name(), member.len()));
            return Err(SweepError::UnequalZip(lengths.collect()));
        }
    }
    Ok(axes)
}
