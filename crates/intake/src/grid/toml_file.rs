//! TOML, with the place and the spelling of every value.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::literal::DEEPEST;
use super::number::python_number;
use super::problem::{GridError, GridProblem};
use super::source_text::SourceText;
use super::value::{GridValue, ValueKind};

/// The value of a TOML file.
pub(super) fn read_toml(text: &str) -> Result<GridValue, GridError> {
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().unwrap_or(0..0);
        let message = error.message().replace('\n', ", ");
        let language = "TOML";
        SourceText(text).error(at, GridProblem::Syntax { language, message })
    })?;
    let kind = dictionary(text, table.get_ref(), 0)?;
    Ok(GridValue::new(kind, table.span()))
}

fn value(text: &str, value: &Spanned<DeValue<'_>>, depth: usize) -> Result<GridValue, GridError> {
    let span = value.span();
    if depth > DEEPEST {
        return Err(SourceText(text).error(span, GridProblem::TooDeep));
    }
    let written = text.get(span.clone()).unwrap_or_default();
    let kind = match value.get_ref() {
        DeValue::String(text) => ValueKind::Text(text.as_ref().into()),
        DeValue::Datetime(time) => ValueKind::Text(time.to_string().into()),
        DeValue::Boolean(bool) => ValueKind::Bool(*bool),
        DeValue::Integer(_) => python_number(written).unwrap_or(ValueKind::Int("0".into())),
        DeValue::Float(float) => {
            let plain = float.as_str().replace('_', "");
            ValueKind::Float(plain.parse().unwrap_or(f64::NAN))
        }
        DeValue::Array(items) => {
            let items = items.iter().map(|item| self::value(text, item, depth + 1));
            ValueKind::List(items.collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => dictionary(text, table, depth)?,
    };
    let is_spelled = matches!(kind, ValueKind::Bool(_) | ValueKind::Int(_) | ValueKind::Float(_));
    let value = GridValue::new(kind, span);
    Ok(if is_spelled { value.written_as(written) } else { value })
}

fn dictionary(text: &str, table: &DeTable<'_>, depth: usize) -> Result<ValueKind, GridError> {
    // As they were written: the table itself is in another order.
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let members = entries.into_iter().map(|(key, entry)| {
        let name = ValueKind::Text(key.get_ref().as_ref().into());
        let key = GridValue::new(name, key.span());
        Ok((key, value(text, entry, depth + 1)?))
    });
    Ok(ValueKind::Dict(members.collect::<Result<_, GridError>>()?))
}
