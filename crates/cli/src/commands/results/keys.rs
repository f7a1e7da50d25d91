use std::cmp::Ordering;
use std::collections::BTreeSet;

use anyhow::bail;
use packhorse_intake::{did_you_mean, nearest};
use packhorse_model::MetricSummary;
use packhorse_session::{TestResult, is_more_better};
use serde_json::Value;

/// What tests are sorted or drawn by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    Param(String),
    Metric(String, MetricValue),
    Task,
    Folder,
    Outcome,
    Time,
    Peak,
    Attempts,
    Started,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricValue {
    Best,
    Last,
    Lowest,
    Highest,
    Count,
}

/// What a test has of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyValue {
    Number(f64),
    Text(String),
}

/// The keys that every test has, and other names of theirs.
const OWN: [(&str, Key); 10] = [
    ("time", Key::Time),
    ("seconds", Key::Time),
    ("peak", Key::Peak),
    ("vram", Key::Peak),
    ("outcome", Key::Outcome),
    ("attempts", Key::Attempts),
    ("started", Key::Started),
    ("task", Key::Task),
    ("folder", Key::Folder),
    ("test", Key::Folder),
];

const METRIC_VALUES: [(&str, MetricValue); 5] = [
    ("best", MetricValue::Best),
    ("last", MetricValue::Last),
    ("lowest", MetricValue::Lowest),
    ("highest", MetricValue::Highest),
    ("count", MetricValue::Count),
];

impl MetricValue {
    /// This value of the metric of this name.
    pub fn of(self, name: &str, summary: &MetricSummary) -> f64 {
        match self {
            // A run that has diverged has nothing to show for what was good before.
            Self::Best if summary.is_diverged() => summary.last,
            Self::Best if is_more_better(name) => summary.highest,
            Self::Best | Self::Lowest => summary.lowest,
            Self::Last => summary.last,
            Self::Highest => summary.highest,
            #[expect(clippy::cast_precision_loss, reason = "for people and for sorting")]
            Self::Count => summary.count as f64,
        }
    }
}

impl Key {
    /// The key of this name. Names of parameters and metrics come before ours.
    pub fn find(text: &str, tests: &[TestResult]) -> anyhow::Result<Self> {
        let has_metric = |name: &str| tests.iter().any(|test| test.metrics.contains_key(name));
        if tests.iter().any(|test| test.params.contains_key(text)) {
            return Ok(Self::Param(text.to_owned()));
        }
        if has_metric(text) {
            return Ok(Self::Metric(text.to_owned(), MetricValue::Best));
        }
        if let Some((name, which)) = text.rsplit_once('.')
            && has_metric(name)
            && let Some((_, which)) = METRIC_VALUES.iter().find(|(word, _)| *word == which)
        {
            return Ok(Self::Metric(name.to_owned(), *which));
        }
        if let Some((_, key)) = OWN.iter().find(|(name, _)| *name == text) {
            return Ok(key.clone());
        }
        if text == "step" {
            bail!("a test has many steps\nhint: `--plot step loss` draws a metric by its steps");
        }
        let metrics: BTreeSet<&str> = names(tests, |test| test.metrics.keys());
        let of_metrics = metrics.iter().flat_map(|name| {
            let values = METRIC_VALUES.iter();
            values.map(move |(value, _)| format!("{name}.{value}"))
        });
        let of_metrics: Vec<String> = of_metrics.collect();
        let params: BTreeSet<&str> = names(tests, |test| test.params.keys());
        let own = ["time", "peak", "outcome", "attempts", "started", "task", "folder"];
        let plain: Vec<&str> = params.into_iter().chain(metrics).chain(own).collect();
        let known = plain.iter().copied();
        let near = nearest(text, known.chain(of_metrics.iter().map(String::as_str)));
        let hint = match near {
            Some(near) => did_you_mean(near),
            None => format!("there are {}", plain.join(", ")),
        };
        bail!("no test has a parameter or metric `{text}`\nhint: {hint}");
    }

    /// What a test has of it.
    pub fn of(&self, test: &TestResult) -> Option<KeyValue> {
        let number = |value: f64| Some(KeyValue::Number(value));
        match self {
            Self::Param(name) => test.params.get(name).map(KeyValue::of_param),
            Self::Metric(name, which) => {
                let summary = test.metrics.get(name)?;
                number(which.of(name, summary))
            }
            Self::Task => {
                let task = test.task?;
                number(f64::from(task.run.0) * 2_f64.powi(32) + f64::from(task.number))
            }
            Self::Folder => {
                let folder = test.folder.as_ref()?;
                Some(KeyValue::Text(folder.to_string_lossy().into_owned()))
            }
            Self::Outcome => Some(KeyValue::Text(test.outcome.word().to_owned())),
            Self::Time => number(test.took?.as_secs_f64()),
            #[expect(clippy::cast_precision_loss, reason = "for people and for sorting")]
            Self::Peak => number(test.peak?.0 as f64),
            Self::Attempts => number(test.attempts?.into()),
            #[expect(clippy::cast_precision_loss, reason = "for people and for sorting")]
            Self::Started => number(test.started?.0 as f64 / 1e6),
        }
    }
}

fn names<'t, I: Iterator<Item = &'t String>>(
    tests: &'t [TestResult],
    of: impl Fn(&'t TestResult) -> I,
) -> BTreeSet<&'t str> {
    tests.iter().flat_map(of).map(String::as_str).collect()
}

impl KeyValue {
    /// A parameter. Those of a sweep are text, numbers too.
    fn of_param(value: &Value) -> Self {
        let text = param_text(value);
        let number = text.trim().parse::<f64>().ok();
        match number.filter(|number| number.is_finite()) {
            Some(number) => Self::Number(number),
            None => Self::Text(text),
        }
    }

    /// Whether there is a place for it among others: NaN and infinity are behind them.
    fn is_finite(&self) -> bool {
        !matches!(self, Self::Number(number) if !number.is_finite())
    }

    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Number(_), Self::Text(_)) => Ordering::Less,
            (Self::Text(_), Self::Number(_)) => Ordering::Greater,
        }
    }
}

/// A parameter as it is shown: text as it is, all else as JSON.
pub fn param_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Sorts by the key of this name, downwards if there is a minus sign before it. NaN and
/// infinity come behind all other values, and tests that have none come last.
pub fn sort(tests: &mut [TestResult], text: &str) -> anyhow::Result<()> {
    let (key, down) = match (Key::find(text, tests), text.strip_prefix('-')) {
        (Ok(key), _) => (key, false),
        (Err(_), Some(rest)) => (Key::find(rest, tests)?, true),
        (Err(error), None) => return Err(error),
    };
    tests.sort_by_cached_key(|test| SortKey { value: key.of(test), down });
    Ok(())
}

struct SortKey {
    value: Option<KeyValue>,
    down: bool,
}

impl Ord for SortKey {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.value, &other.value) {
            (Some(a), Some(b)) => match (a.is_finite(), b.is_finite()) {
                (true, true) if self.down => b.compare(a),
                (true, true) => a.compare(b),
                (a, b) => b.cmp(&a),
            },
            (a, b) => b.is_some().cmp(&a.is_some()),
        }
    }
}

impl PartialOrd for SortKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SortKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for SortKey {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn test(lr: Option<Value>, loss: Option<f64>) -> TestResult {
        let param = lr.map(|lr| ("lr".to_owned(), lr));
        let metric = loss.map(|loss| ("loss".to_owned(), MetricSummary::of(loss)));
        TestResult {
            params: BTreeMap::from_iter(param),
            metrics: BTreeMap::from_iter(metric),
            ..TestResult::default()
        }
    }

    fn sorted(by: &str) -> Vec<String> {
        let mut tests = vec![
            test(Some(json!("10")), Some(0.5)),
            test(Some(json!("9e0")), None),
            test(None, Some(-2.0)),
            test(Some(json!("auto")), Some(3.0)),
            test(Some(json!(0.5)), Some(10.0)),
        ];
        sort(&mut tests, by).unwrap();
        let lr = |test: &TestResult| test.params.get("lr").map_or_else(String::new, param_text);
        tests.iter().map(lr).collect()
    }

    #[test]
    fn numbers_are_sorted_as_numbers_and_what_is_missing_comes_last() {
        assert_eq!(sorted("lr"), ["0.5", "9e0", "10", "auto", ""]);
        assert_eq!(sorted("-lr"), ["auto", "10", "9e0", "0.5", ""]);
        assert_eq!(sorted("loss"), ["", "10", "auto", "0.5", "9e0"]);
        assert_eq!(sorted("-loss.last"), ["0.5", "auto", "10", "", "9e0"]);
    }

    #[test]
    fn what_is_not_finite_comes_behind_the_rest_whichever_way() {
        for (by, wanted) in
            [("loss", ["1", "2", "n", "p", ""]), ("-loss", ["2", "1", "n", "p", ""])]
        {
            let mut tests = vec![
                test(Some(json!("n")), Some(f64::NAN)),
                test(Some(json!("p")), Some(f64::NEG_INFINITY)),
                test(None, None),
                test(Some(json!("2")), Some(2.0)),
                test(Some(json!("1")), Some(1.0)),
            ];
            sort(&mut tests, by).unwrap();
            let lr = |test: &TestResult| test.params.get("lr").map_or_else(String::new, param_text);
            assert_eq!(tests.iter().map(lr).collect::<Vec<_>>(), wanted, "{by}");
        }
    }

    #[test]
    fn the_best_of_what_has_diverged_is_how_it_ended() {
        let mut summary = MetricSummary::of(0.1);
        summary.add(f64::NAN);
        for (name, which) in [("loss", MetricValue::Best), ("acc", MetricValue::Last)] {
            assert!(which.of(name, &summary).is_nan());
        }
        assert!((MetricValue::Lowest.of("loss", &summary) - 0.1).abs() < f64::EPSILON);
    }

    #[test]
    fn the_best_is_the_lowest_unless_the_name_says_otherwise() {
        let summary = MetricSummary { last: 2.0, lowest: 1.0, highest: 3.0, count: 5 };
        for (name, best) in [("loss", 1.0), ("val_acc", 3.0)] {
            let test = TestResult {
                metrics: BTreeMap::from([(name.to_owned(), summary)]),
                ..TestResult::default()
            };
            let tests = [test];
            for (key, wanted) in [
                (name.to_owned(), best),
                (format!("{name}.best"), best),
                (format!("{name}.last"), 2.0),
                (format!("{name}.lowest"), 1.0),
                (format!("{name}.highest"), 3.0),
                (format!("{name}.count"), 5.0),
            ] {
                let key = Key::find(&key, &tests).unwrap();
                assert_eq!(key.of(&tests[0]), Some(KeyValue::Number(wanted)));
            }
        }
    }

    #[test]
    fn an_unknown_key_has_advice() {
        let tests = [test(Some(json!(1)), Some(1.0))];
        for (text, wanted) in [
            ("los", "did you mean `loss`?"),
            ("loss.lats", "did you mean `loss.last`?"),
            ("tiem", "did you mean `time`?"),
            ("banana", "there are lr, loss, time, peak"),
            ("step", "`--plot step loss` draws"),
        ] {
            let error = Key::find(text, &tests).unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
