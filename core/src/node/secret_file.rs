//! Files that hold secrets: how one is read, and a warning where others could read it too.

use super::error::ServerError;
use super::settings::{Secret, Settings, check_secret};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Longer than any secret.
const LONGEST: u64 = 64 << 10;

/// The secret in a file; a line end after it does not count.
pub(super) fn read_secret(name: &str, path: &Path) -> Result<Secret, ServerError> {
    let broken = |problem: String| ServerError::SecretFile {
        path: path.to_owned(),
        problem,
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| broken(error.to_string()))?;
    warn_if_open("secret file", path, &file);
    file.take(LONGEST)
        .read_to_end(&mut bytes)
        .map_err(|error| broken(error.to_string()))?;
    if bytes.ends_with(b"\n") {
        bytes.pop();
        if bytes.ends_with(b"\r") {
            bytes.pop();
        }
    }
    let secret = Secret::new(bytes);
    check_secret(name, &secret).map_err(|error| broken(error.expected))?;
    Ok(secret)
}

impl Settings {
    /// What has to be said to the admin page, if anything, read from its file where it is in one.
    ///
    /// # Errors
    /// The file cannot be read, or holds nothing that can be a secret.
    pub fn secret_of_admin(&self) -> Result<Option<Secret>, ServerError> {
        match &self.admin_secret_file {
            Some(path) => read_secret("admin_secret_file", path).map(Some),
            None => Ok(self.admin_secret.clone()),
        }
    }
}

/// Says so if everybody on this machine may read or write a file.
pub(super) fn warn_if_open(what: &str, path: &Path, file: &File) {
    let mode = file
        .metadata()
        .map_or(0, |metadata| metadata.permissions().mode())
        & 0o7777;
    if mode & 0o006 != 0 {
        tracing::warn!(
            "{what} {}: everybody on this machine can read or change it (mode {mode:o}); `chmod o-rwx` it",
            path.display()
        );
    }
}
