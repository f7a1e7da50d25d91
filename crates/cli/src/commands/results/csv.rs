use std::io::{self, Write};

use packhorse_model::{Bytes, MetricSummary};
use packhorse_session::TestResult;

use super::diverged;
use super::keys::{MetricValue, param_text};
use super::listing::{metric_names, param_names};

/// The columns that every test has.
const OWN: [&str; 9] =
    ["task", "folder", "outcome", "detail", "diverged", "seconds", "peak", "attempts", "started"];

/// The columns of each metric.
const OF_METRIC: [(&str, MetricValue); 5] = [
    ("", MetricValue::Best),
    (".last", MetricValue::Last),
    (".lowest", MetricValue::Lowest),
    (".highest", MetricValue::Highest),
    (".count", MetricValue::Count),
];

/// Writes everything that is known of the tests as a table for other programs.
pub fn write(out: &mut impl Write, tests: &[TestResult]) -> io::Result<()> {
    let (params, metrics) = (param_names(tests), metric_names(tests));
    let [task, folder, results @ ..] = OWN;
    let title = |name: &&str| {
        // A parameter that is called as another column is.
        if OWN.contains(name) || metrics.contains(name) {
            format!("params.{name}")
        } else {
            (*name).to_owned()
        }
    };
    let mut header = vec![task.to_owned(), folder.to_owned()];
    header.extend(params.iter().map(title));
    header.extend(results.map(str::to_owned));
    for name in &metrics {
        header.extend(OF_METRIC.map(|(suffix, _)| format!("{name}{suffix}")));
    }
    line(out, &header)?;
    for test in tests {
        let folder = test.folder.as_ref();
        let mut fields = vec![
            text(test.task),
            folder.map_or_else(String::new, |it| it.to_string_lossy().into_owned()),
        ];
        let param = |name: &&str| test.params.get(*name).map_or_else(String::new, param_text);
        fields.extend(params.iter().map(param));
        fields.extend([
            test.outcome.word().to_owned(),
            text(test.outcome.detail()),
            diverged(test).collect::<Vec<_>>().join(" "),
            text(test.took.map(|took| took.as_secs_f64())),
            text(test.peak.map(|Bytes(bytes)| bytes)),
            text(test.attempts),
            text(test.started.map(|at| serde_json::json!(at))),
        ]);
        for name in &metrics {
            let summary = test.metrics.get(*name);
            fields.extend(OF_METRIC.map(|(_, which)| {
                let of = |summary: &MetricSummary| which.of(name, summary);
                text(summary.map(of))
            }));
        }
        line(out, &fields)?;
    }
    Ok(())
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// One line, as RFC 4180 wants it but for its end, which is that of every other line here.
fn line(out: &mut impl Write, fields: &[String]) -> io::Result<()> {
    for (index, field) in fields.iter().enumerate() {
        if index > 0 {
            out.write_all(b",")?;
        }
        let is_plain = !field.contains(['"', ',', '\n', '\r']) && field.trim() == field;
        if is_plain {
            out.write_all(field.as_bytes())?;
        } else {
            write!(out, "\"{}\"", field.replace('"', "\"\""))?;
        }
    }
    out.write_all(b"\n")
}
