//! Writing zip archives, without compression: code is small, and disks are large.

use std::io::{self, BufWriter};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use fs_err::{self as fs, File};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// An archive that is being written. It appears as a whole.
pub(crate) struct ZipFile {
    path: PathBuf,
    new: UnfinishedFile,
    out: ZipWriter<BufWriter<File>>,
}

/// A file that goes away unless it is renamed.
struct UnfinishedFile(PathBuf);

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl ZipFile {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let parent = path.parent().unwrap_or(Path::new(""));
        if !parent.as_os_str().is_empty() {
            fs::create_dir_all(parent)?;
        }
        let new = parent.join(format!(".packhorse-zip-{}", std::process::id()));
        let new = UnfinishedFile(new);
        Ok(Self {
            path: path.to_owned(),
            out: ZipWriter::new(BufWriter::new(File::create(&new.0)?)),
            new,
        })
    }

    /// Adds a file under a name.
    pub(crate) fn add(&mut self, name: &Path, file: &Path) -> io::Result<()> {
        let mut input = File::open(file)?;
        let mode = input.metadata()?.permissions().mode();
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .unix_permissions(mode);
        self.out.start_file(name.to_string_lossy(), options)?;
        io::copy(&mut input, &mut self.out)?;
        Ok(())
    }

    pub(crate) fn finish(self) -> io::Result<()> {
        let file = self.out.finish()?.into_inner();
        file.map_err(io::IntoInnerError::into_error)?;
        fs::rename(&self.new.0, &self.path)
    }
}
