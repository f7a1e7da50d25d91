use std::io::Write as _;

use packhorse_model::Exit;
use packhorse_session::settings::{SettingOrigin, Settings};
use serde_json::{Value, json};

use super::table::table;
use crate::args::ConfigArgs;
use crate::complain;

/// `packhorse config`
pub fn config(args: &ConfigArgs) -> anyhow::Result<Exit> {
    let settings = Settings::find()?;
    let mut listed = settings.list();
    if !args.all {
        listed.retain(|(_, value, _)| value.is_some());
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        let listed: Vec<Value> = listed
            .into_iter()
            .map(|(key, value, origin)| {
                json!({"setting": key, "value": value, "from": from(&origin)})
            })
            .collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&listed)?)?;
        return Ok(Exit::Success);
    }
    if listed.is_empty() {
        complain(
            "nothing is set, so the defaults hold\n\
             hint: `packhorse config --all` shows what can be set",
        );
        return Ok(Exit::Success);
    }
    let mut shown = table(["SETTING", "VALUE", "FROM"], &[]);
    for (key, value, origin) in listed {
        let value = match value {
            None => "-".to_owned(),
            Some(Value::String(text)) => text,
            Some(value) => value.to_string(),
        };
        shown.add_row([key, value, from(&origin)]);
    }
    for line in shown.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(Exit::Success)
}

fn from(origin: &SettingOrigin) -> String {
    match origin {
        SettingOrigin::Variable(name) => (*name).to_owned(),
        SettingOrigin::File(path) => path.display().to_string(),
        SettingOrigin::Default => "default".to_owned(),
    }
}
