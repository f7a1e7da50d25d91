//! The database's versions, oldest first. A new version is one more entry;
//! those that were ever released never change.

mod version_2;

use rusqlite::Connection;

pub(crate) use version_2::convert_late_tasks;

/// What turns a database of one version into one of the next.
struct Migration {
    sql: &'static str,
    /// What is done after the SQL, unless the database is a new one: that has
    /// nothing in it to convert.
    then: fn(&Connection) -> rusqlite::Result<()>,
}

impl Migration {
    const fn sql(sql: &'static str) -> Self {
        Self { sql, then: |_| Ok(()) }
    }
}

/// The migration at `index` makes a database of version `index` one of version
/// `index + 1`.
const MIGRATIONS: &[Migration] = &[
    Migration::sql(include_str!("schema/1.sql")),
    Migration::sql(include_str!("schema/2.sql")),
    Migration { sql: include_str!("schema/3.sql"), then: version_2::convert },
    Migration::sql(include_str!("schema/4.sql")),
    Migration::sql(include_str!("schema/5.sql")),
];

/// The newest version.
pub(crate) const VERSION: i32 = 5;
const _: () = assert!(MIGRATIONS.len() == VERSION.cast_unsigned() as usize);

/// A row for the table `tally`: the tasks from key ?1 to key ?2 of run ?3,
/// counted by outcome. Filters, since grouping would sort a million rows in
/// memory.
pub(crate) const TALLY: &str = "SELECT ?3 AS run, \
    count(*) FILTER (WHERE outcome = 2) AS waiting, \
    count(*) FILTER (WHERE outcome = 3) AS interrupted, \
    count(*) FILTER (WHERE outcome = 4) AS succeeded, \
    count(*) FILTER (WHERE outcome = 5) AS failed, \
    count(*) FILTER (WHERE outcome = 6) AS killed, \
    count(*) FILTER (WHERE outcome = 7) AS timed_out, \
    count(*) FILTER (WHERE outcome = 8) AS not_started, \
    count(*) FILTER (WHERE outcome = 9) AS skipped \
    FROM task WHERE id BETWEEN ?1 AND ?2";

/// The version a database says it has; 0 is an empty one.
pub(crate) fn version(db: &Connection) -> rusqlite::Result<i32> {
    db.query_one("PRAGMA user_version", [], |row| row.get(0))
}

/// Brings the database to the newest version, all or nothing. Another process
/// may be about to do the same.
pub(crate) fn migrate(db: &Connection) -> rusqlite::Result<()> {
    migrate_by(db, MIGRATIONS)
}

fn migrate_by(db: &Connection, migrations: &[Migration]) -> rusqlite::Result<()> {
    db.execute_batch("BEGIN IMMEDIATE")?;
    let work = || {
        // Asked again under the lock: the other process may have been first.
        let have = usize::try_from(version(db)?).unwrap_or(0);
        for migration in migrations.iter().skip(have) {
            db.execute_batch(migration.sql)?;
            if have > 0 {
                (migration.then)(db)?;
            }
        }
        if have < migrations.len() {
            db.pragma_update(None, "user_version", migrations.len().cast_signed())?;
        }
        db.execute_batch("COMMIT")
    };
    work().inspect_err(|_| {
        // Already rolled back by SQLite if this fails.
        let _ = db.execute_batch("ROLLBACK");
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(db: &Connection) -> i64 {
        db.query_one("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn an_empty_database_becomes_one_of_the_newest_version() {
        let db = Connection::open_in_memory().unwrap();
        migrate(&db).unwrap();
        assert_eq!(version(&db).unwrap(), VERSION);
        db.prepare("SELECT 1 FROM run, task, attempt, tally, sample, drained, counter, metric")
            .unwrap();
        migrate(&db).expect("doing it again does nothing");
    }

    #[test]
    fn only_the_steps_that_are_missing_are_taken() {
        let db = Connection::open_in_memory().unwrap();
        let [one, two] = ["CREATE TABLE one (x)", "CREATE TABLE two (x)"].map(Migration::sql);
        migrate_by(&db, std::slice::from_ref(&one)).unwrap();
        migrate_by(&db, &[one, two]).unwrap();
        assert_eq!(tables(&db), 2);
        assert_eq!(version(&db).unwrap(), 2);
    }

    #[test]
    fn a_step_that_fails_leaves_nothing_behind() {
        let db = Connection::open_in_memory().unwrap();
        let steps = ["CREATE TABLE one (x)", "nonsense"].map(Migration::sql);
        migrate_by(&db, &steps).unwrap_err();
        assert_eq!(tables(&db), 0);
        assert_eq!(version(&db).unwrap(), 0);
        assert!(db.is_autocommit());
    }
}
