//! Files and folders that only their owner can read, whatever the umask: what tasks print and
//! what is in their environment may be secret.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::Path;

const FILE: u32 = 0o600;

const FOLDER: u32 = 0o700;

/// Opens a file that is ours alone, and gives one that is new the bits that a umask took away.
pub fn open_private(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.mode(FILE).open(path).map_err(|error| named("open file", path, &error))?;
    make_private(&file).map_err(|error| named("set the mode of", path, &error))?;
    Ok(file)
}

/// Makes an open file readable for its owner alone. Devices and the like stay as they are.
pub fn make_private(file: &File) -> io::Result<()> {
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.mode() & 0o777 == FILE {
        return Ok(());
    }
    file.set_permissions(Permissions::from_mode(FILE))
}

/// Creates an empty file that is ours alone, or empties one.
pub fn create_private(path: &Path) -> io::Result<File> {
    open_private(OpenOptions::new().write(true).create(true).truncate(true), path)
}

/// Writes a file that is ours alone.
pub fn write_private(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let written = create_private(path)?.write_all(bytes.as_ref());
    written.map_err(|error| named("write to file", path, &error))
}

/// Makes a folder that only its owner can look into, and in the same way those above it that are
/// missing. One that is there already is an error of the kind `AlreadyExists`.
pub fn create_private_folder(folder: &Path) -> io::Result<()> {
    let create = || DirBuilder::new().mode(FOLDER).create(folder);
    let created = match (create(), folder.parent()) {
        (Err(error), Some(above)) if error.kind() == io::ErrorKind::NotFound => {
            ensure_private_folder(above)?;
            create()
        }
        (other, _) => other,
    };
    let made = created.and_then(|()| {
        let mode = std::fs::symlink_metadata(folder)?.mode() & 0o777;
        match mode {
            FOLDER => Ok(()),
            _ => std::fs::set_permissions(folder, Permissions::from_mode(FOLDER)),
        }
    });
    made.map_err(|error| named("create folder", folder, &error))
}

/// Creates a private folder if it does not exist.
pub fn ensure_private_folder(folder: &Path) -> io::Result<()> {
    match create_private_folder(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        other => other,
    }
}

/// The system's error, with what it is about.
fn named(doing: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("failed to {doing} `{}`: {error}", path.display()))
}
