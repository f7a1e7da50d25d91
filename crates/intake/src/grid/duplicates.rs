use std::collections::HashSet;

use super::value::GridValue;

/// The first key that was there before.
pub(super) fn first_duplicate(members: &[(GridValue, GridValue)]) -> Option<&GridValue> {
    let mut seen = HashSet::new();
    let mut keys = members.iter().map(|(key, _)| key);
    keys.find(|key| !seen.insert(key.identity()))
}
