//! Laying one dictionary over another.

use crate::grid::value::{GridValue, ValueKind};

/// The members of a dictionary.
pub(super) type Members = Vec<(GridValue, GridValue)>;

/// Lays `over` over `base`: dictionaries key by key, and whatever else is there replaces
/// what was. Keys keep their places, and new ones come last.
pub(super) fn merge(mut base: Members, over: &Members) -> Members {
    for (key, value) in over {
        match base.iter_mut().find(|(known, _)| known == key) {
            None => base.push((key.clone(), value.clone())),
            Some((_, known)) => {
                *known = match (&mut known.kind, &value.kind) {
                    (ValueKind::Dict(below), ValueKind::Dict(above)) => {
                        let merged = merge(std::mem::take(below), above);
                        GridValue::new(ValueKind::Dict(merged), value.span.clone())
                    }
                    // As the original has it: there is nothing in it to change anything.
                    (_, ValueKind::Dict(above)) if above.is_empty() => continue,
                    _ => value.clone(),
                };
            }
        }
    }
    base
}

pub(super) fn get<'m>(members: &'m Members, key: &str) -> Option<&'m GridValue> {
    let mut members = members.iter();
    members
        .find(|(known, _)| matches!(&known.kind, ValueKind::Text(text) if **text == *key))
        .map(|(_, value)| value)
}

/// Takes a key out.
pub(super) fn take(members: &mut Members, key: &str) -> Option<GridValue> {
    let is_it = |known: &GridValue| matches!(&known.kind, ValueKind::Text(text) if **text == *key);
    let place = members.iter().position(|(known, _)| is_it(known))?;
    Some(members.remove(place).1)
}

/// Gives a key a value, where it stands or else at the end.
pub(super) fn set(members: &mut Members, key: &str, value: GridValue) {
    let key = text(key);
    match members.iter_mut().find(|(known, _)| *known == key) {
        Some((_, known)) => *known = value,
        None => members.push((key, value)),
    }
}

/// Text that stands nowhere.
pub(super) fn text(text: &str) -> GridValue {
    GridValue::new(ValueKind::Text(text.into()), 0..0)
}
