//! Opening the database, in as few statements as will do: the first task of a
//! run may be waiting for it.

use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use packhorse_trust::{is_ours, open_private};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::schema::{self, VERSION};
use crate::{Home, StoreError};

/// How long a statement waits for another process's transaction. Theirs take
/// well under a millisecond, except on a slow network disk.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// What is set for a connection that writes.
///
/// - `synchronous` NORMAL with a write-ahead log: a commit is handed to the
///   kernel and not waited for. It outlives the process; a power cut may take
///   the last moments, but never harms the database.
/// - The cache is bounded: tasks are written in order and hardly read again.
/// - The log is moved into the main file after every 2 MB, which is the only
///   time the writer waits for the disk. The file shrinks to that size when
///   the log begins anew.
const WRITING: &str = "PRAGMA synchronous = NORMAL; PRAGMA cache_size = -512; \
    PRAGMA temp_store = MEMORY; PRAGMA wal_autocheckpoint = 500; \
    PRAGMA journal_size_limit = 2097152;";

/// The longest log that is left behind on closing: see `journal_size_limit`.
const LONGEST_LOG_LEFT: u64 = 2_097_152;

/// What every SQLite file begins with.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// Where its header holds `user_version`, big end first.
const VERSION_AT: std::ops::Range<usize> = 60..64;

impl Home {
    /// Whether a run could be recorded here, as far as that can be told in
    /// microseconds (opening the database takes a millisecond): what is there is a
    /// database, and not a newer program's.
    pub fn check_database(&self) -> Result<(), StoreError> {
        self.refuse_wrong_file()?;
        let mut header = [0; 100];
        let read = match fs_err::File::open(self.db()) {
            Ok(mut file) => file.read(&mut header)?,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        // An empty file is one that somebody is just making.
        if read == 0 {
            return Ok(());
        }
        if !header.starts_with(MAGIC) {
            return Err(StoreError::NotADatabase { path: self.db() });
        }
        let mut version = [0; 4];
        version.copy_from_slice(&header[VERSION_AT]);
        check_version(i32::from_be_bytes(version), self)
    }

    /// Refuses what is no regular file in the database's place (to open a fifo waits for a
    /// writer), and a file of another user.
    fn refuse_wrong_file(&self) -> Result<(), StoreError> {
        match fs_err::metadata(self.db()) {
            Ok(found) if !found.is_file() => Err(StoreError::NotADatabase { path: self.db() }),
            _ => refuse_foreign(self.db()),
        }
    }
}

/// Refuses a file in the state folder that another user has put there, if there is one at `path`.
pub(crate) fn refuse_foreign(path: PathBuf) -> Result<(), StoreError> {
    match fs_err::symlink_metadata(&path) {
        Ok(found) if !is_ours(found.uid()) => {
            Err(StoreError::PlantedInHome { path, owner: found.uid() })
        }
        _ => Ok(()),
    }
}

/// Opens the database to write, creating it or bringing it up to date.
pub(crate) fn open(home: &Home) -> Result<Connection, StoreError> {
    let failed = |source| home.sqlite_error(source);
    let (db, version) = connect(home, OpenFlags::SQLITE_OPEN_CREATE)?;
    if version < VERSION {
        schema::migrate(&db).map_err(failed)?;
    }
    // Shared memory does not reach across a network.
    let (journal, truncate) = match home.network_filesystem() {
        None => ("PRAGMA journal_mode = WAL", false),
        Some(_) => ("PRAGMA journal_mode = TRUNCATE", true),
    };
    match db.query_one(journal, [], |_| Ok(())) {
        // The mode can only change while nobody else is at work. Whoever is
        // has set it, or will find it as it is; both kinds are safe. Only a
        // log on a network disk is not.
        Err(error) if !truncate && is_busy(&error) => {}
        other => other.map_err(failed)?,
    }
    db.execute_batch(WRITING).map_err(failed)?;
    Ok(db)
}

/// Closes the database. A short log is left for the next writer to go on with:
/// moving it into the main file means waiting for the disk, which may take longer
/// than a short run did. A long one would slow down every later opening.
pub(crate) fn close(db: Connection, home: &Home) -> Result<(), StoreError> {
    let mut log = home.db().into_os_string();
    log.push("-wal");
    let short = fs_err::metadata(log).is_ok_and(|file| file.len() <= LONGEST_LOG_LEFT);
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, short)
        .and_then(|_| db.close().map_err(|(_, source)| source))
        .map_err(|source| home.sqlite_error(source))
}

/// Opens the database to read, if there is one.
pub(crate) fn open_to_read(home: &Home) -> Result<Option<Connection>, StoreError> {
    if !home.db().exists() {
        return Ok(None);
    }
    // A read-only connection could not clean up after a writer that was
    // killed, and would read nothing at all then. This one may, and refuses
    // every statement that changes something.
    let (db, version) = connect(home, OpenFlags::empty())?;
    if version == 0 {
        return Ok(None);
    }
    if version < VERSION {
        drop(open(home)?);
    }
    db.execute_batch("PRAGMA query_only = ON")
        .and_then(|()| db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true))
        .map_err(|source| home.sqlite_error(source))?;
    Ok(Some(db))
}

/// Makes an empty file for a database, or makes the one that is there private. SQLite gives the
/// files beside it the same mode.
pub(crate) fn make_private_file(path: &Path) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    match open_private(options.write(true).create_new(true), path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        other => return other.map(drop),
    }
    // Without opening it: to close it again would take away the locks that other connections of
    // this process have.
    let mode = fs_err::metadata(path)?.permissions().mode() & 0o777;
    if mode & 0o177 != 0 {
        fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// A connection, and the version of the database.
fn connect(home: &Home, flags: OpenFlags) -> Result<(Connection, i32), StoreError> {
    home.refuse_wrong_file()?;
    for suffix in ["-wal", "-shm", "-journal"] {
        let mut beside = home.db().into_os_string();
        beside.push(suffix);
        refuse_foreign(beside.into())?;
    }
    if flags.contains(OpenFlags::SQLITE_OPEN_CREATE) {
        make_private_file(&home.db())?;
    }
    let connect = || {
        let flags = flags
            | OpenFlags::SQLITE_OPEN_READ_WRITE
            // One thread has the connection: SQLite need not lock it.
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_EXRESCODE;
        let db = Connection::open_with_flags(home.db(), flags)?;
        db.busy_timeout(BUSY_TIMEOUT)?;
        let version = schema::version(&db)?;
        Ok((db, version))
    };
    let (db, version) =
        connect().map_err(|source: rusqlite::Error| match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => StoreError::NotADatabase { path: home.db() },
            _ => home.sqlite_error(source),
        })?;
    check_version(version, home)?;
    Ok((db, version))
}

fn check_version(found: i32, home: &Home) -> Result<(), StoreError> {
    if found > VERSION {
        return Err(StoreError::Newer { path: home.db(), found, known: VERSION });
    }
    Ok(())
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_shared_memory_on_a_network_disk_even_if_there_was_before() {
        let dir = tempfile::tempdir().unwrap();
        let mut home = Home::open(dir.path().join("home")).unwrap();
        for (network, expected) in [(None, "wal"), (Some("NFS"), "truncate"), (None, "wal")] {
            home = home.pretending(network);
            let db = open(&home).unwrap();
            let mode = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
            assert_eq!(db.query_one("PRAGMA journal_mode", [], mode).unwrap(), expected);
            db.execute_batch("DELETE FROM run").unwrap();
            let memory = dir.path().join("home/packhorse.db-shm").exists();
            assert_eq!(memory, network.is_none());
            close(db, &home).unwrap();
        }
    }

    #[test]
    fn whoever_reads_cannot_write() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(dir.path().join("home")).unwrap();
        close(open(&home).unwrap(), &home).unwrap();
        let db = open_to_read(&home).unwrap().unwrap();
        assert!(db.execute_batch("DELETE FROM run").is_err());
    }
}
