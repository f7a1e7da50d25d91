use super::*;
use crate::schema::{MIGRATIONS, migrate, migrate_by, version};

const RUN: i64 = 7 << 32;

/// A database of version 2 after these statements.
fn database(sql: &str) -> Connection {
    let db = Connection::open_in_memory().unwrap();
    migrate_by(&db, &MIGRATIONS[..2]).unwrap();
    assert_eq!(version(&db).unwrap(), 2);
    db.execute_batch(sql).unwrap();
    db
}

fn task(db: &Connection, number: i64) -> Option<TaskSpec> {
    let sql = "SELECT spec FROM task WHERE id = ?1";
    let json: Option<String> = db.query_one(sql, [RUN | number], |row| row.get(0)).unwrap();
    json.map(|json| serde_json::from_str(&json).unwrap())
}

/// A task with this in its columns, beside a plain one.
fn converted(columns: &str, values: &str) -> Option<TaskSpec> {
    let db = database(&format!(
        "INSERT INTO task (id, outcome, words, command, {columns})
            VALUES ({RUN} | 1, 2, 0, x'61', {values});
         INSERT INTO task (id, outcome, words, command) VALUES ({RUN} | 2, 2, 0, x'61');"
    ));
    migrate(&db).unwrap();
    assert_eq!(task(&db, 2), None);
    task(&db, 1)
}

#[test]
fn each_column_becomes_a_member() {
    let with = |change: fn(&mut TaskSpec)| {
        let mut spec = TaskSpec::default();
        change(&mut spec);
        Some(spec)
    };
    for (column, value, wanted) in [
        ("name", "'n'", with(|t| t.name = Some("n".to_owned()))),
        ("gpus", "0", with(|t| t.gpus = Some(GpuRequest::None))),
        ("gpus", "333", with(|t| t.gpus = Some(GpuRequest::Share(Milli(333))))),
        ("gpus", "2000", with(|t| t.gpus = Some(GpuRequest::Whole(2)))),
        ("gpus", "-1", None),
        ("cores", "3", with(|t| t.cores = Some(3))),
        ("priority", "-4", with(|t| t.priority = Some(Priority(-4)))),
        ("retries", "0", with(|t| t.retries = Some(0))),
        ("time_limit", "0", with(|t| t.timeout = Some(TimeLimit::Never))),
        (
            "time_limit",
            "1500",
            with(|t| t.timeout = Some(TimeLimit::After(Duration::from_millis(1500)))),
        ),
        ("vram", "-1", with(|t| t.vram = Some(VramRequest::Auto))),
        ("vram", "9663676416", with(|t| t.vram = Some(VramRequest::Bytes(Bytes(9 << 30))))),
        ("cpu", "1500", with(|t| t.cpu = Some(Milli(1500)))),
        ("ram", "1024", with(|t| t.ram = Some(Bytes(1024)))),
        ("model", "'A100'", with(|t| t.gpu_model = Some("A100".to_owned()))),
        ("signature", "''", with(|t| t.signature = Some(String::new()))),
        ("folder", "x'2fff'", with(|t| t.folder = Some(columns::path(vec![b'/', 0xff])))),
    ] {
        assert_eq!(converted(column, value), wanted, "{column} = {value}");
    }
}

#[test]
fn tasks_it_comes_after_get_their_names_back() {
    let db = database(&format!(
        "INSERT INTO task (id, outcome, words, command, name, after) VALUES
            ({RUN} | 1, 2, 0, x'61', 'a', NULL), ({RUN} | 2, 2, 0, x'61', NULL, x'01000000'),
            ({RUN} | 3, 2, 0, x'61', NULL, x'0100000002000000');"
    ));
    migrate(&db).unwrap();
    for number in [2, 3] {
        assert_eq!(task(&db, number).unwrap().after, ["a"]);
    }
}

#[test]
fn more_tasks_than_a_page_are_all_converted() {
    let count = i64::from(PAGE) * 2 + 1;
    let db = database(&format!(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
         INSERT INTO task (id, outcome, words, command, cores) SELECT {RUN} | i, 2, 0, x'61', i FROM n;"
    ));
    migrate(&db).unwrap();
    for number in [1, count - 1, count] {
        let cores = task(&db, number).unwrap().cores;
        assert_eq!(cores.map(i64::from), Some(number));
    }
}

#[test]
fn settings_that_cannot_be_read_stay_as_they_are() {
    for settings in ["", "words", r#"{"vram":"much"}"#, r#"{"gpus":7}"#] {
        let db = database("");
        let sql = "INSERT INTO run (id, uuid, started, pid, host, cwd, argv, settings) \
                   VALUES (1, x'00', 0, 0, '', x'', x'', ?1)";
        db.execute(sql, [settings]).unwrap();
        migrate(&db).unwrap();
        let sql = "SELECT settings FROM run";
        let kept: String = db.query_one(sql, [], |row| row.get(0)).unwrap();
        assert_eq!(kept, settings);
    }
}
