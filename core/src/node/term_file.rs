//! The file `term` of the data dir: the last term that this node has opened.
//!
//! Fencing tokens rise over restarts because this number does, so a file that cannot be read for certain
//! is an error for a person to look at. It never counts as a first start, and nothing is written over it.

use super::data_dir::DataDir;
use super::error::ServerError;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};

const NAME: &str = "term";
const NEW_NAME: &str = "term.new";
const TITLE: &str = "fairlock term file, version 1";
/// Far more than the file ever has; a larger one is not ours.
const MOST_BYTES: u64 = 4096;

/// The term in the file, or `None` where there has never been one.
pub(crate) fn read(dir: &DataDir) -> Result<Option<u32>, ServerError> {
    let path = dir.file(NAME);
    let broken = |problem: String| ServerError::TermFile {
        path: path.clone(),
        problem,
    };
    let length = match fs::symlink_metadata(&path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(broken(error.to_string())),
    };
    if length > MOST_BYTES {
        return Err(broken(format!("it has {length} bytes, which is too many")));
    }
    let bytes = fs::read(&path).map_err(|error| broken(error.to_string()))?;
    decode(&bytes)
        .map(Some)
        .map_err(|problem| broken(problem.to_owned()))
}

/// Replaces the term in the file. When this returns, the new one outlasts a power cut.
pub(crate) fn write(dir: &DataDir, term: u32) -> io::Result<()> {
    let mut file = File::create(dir.file(NEW_NAME))?;
    file.write_all(encode(term).as_bytes())?;
    file.sync_all()?;
    fs::rename(dir.file(NEW_NAME), dir.file(NAME))?;
    dir.sync()
}

fn encode(term: u32) -> String {
    let mut text = format!("{TITLE}\nterm {term}\n");
    let check = crc32fast::hash(text.as_bytes());
    writeln!(text, "check {check:08x}").expect("a String takes all text");
    text
}

fn decode(bytes: &[u8]) -> Result<u32, &'static str> {
    if bytes.is_empty() {
        return Err("it is empty");
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text")?;
    let body = text
        .strip_prefix(TITLE)
        .and_then(|rest| rest.strip_prefix("\nterm "))
        .ok_or("it does not begin as a term file does")?;
    let (digits, _) = body.split_once('\n').ok_or("it ends too early")?;
    let term = digits.parse().map_err(|_| "its term is not a number")?;
    if encode(term) != text {
        return Err("its check sum is wrong");
    }
    Ok(term)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path =
                std::env::temp_dir().join(format!("fairlock-term-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Folder(path)
        }

        fn open(&self) -> DataDir {
            DataDir::open(&self.0).expect("nobody else holds it")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_new_folder_has_no_term_and_then_the_one_that_was_written() {
        let folder = Folder::new("new");
        let dir = folder.open();
        assert_eq!(read(&dir).expect("missing is fine"), None);
        for term in [1, 18_000_000, u32::MAX >> 1] {
            write(&dir, term).expect("it is ours");
            assert_eq!(read(&dir).expect("just written"), Some(term));
        }
    }

    #[test]
    fn the_rest_of_an_interrupted_write_is_harmless() {
        let folder = Folder::new("interrupted");
        let dir = folder.open();
        write(&dir, 7).expect("it is ours");
        fs::write(folder.0.join(NEW_NAME), "fairlock ter").expect("it is ours");
        assert_eq!(read(&dir).expect("the old one is whole"), Some(7));
        write(&dir, 8).expect("it is ours");
        assert_eq!(read(&dir).expect("just written"), Some(8));
    }

    #[test]
    fn every_damage_is_an_error_that_names_the_file_and_changes_nothing() {
        let folder = Folder::new("damage");
        let dir = folder.open();
        let path = folder.0.join(NAME);
        let good = encode(18_000_000).into_bytes();
        let mut damaged: Vec<Vec<u8>> = (0..good.len())
            .map(|length| good[..length].to_vec())
            .collect();
        for position in 0..good.len() {
            for bit in 0..8 {
                let mut flipped = good.clone();
                flipped[position] ^= 1 << bit;
                damaged.push(flipped);
            }
        }
        damaged.push(vec![0; good.len()]);
        damaged.push([&good[..], b"\n"].concat());
        damaged.push([&good[..], &good[..]].concat());
        damaged.push(vec![b'x'; 10_000]);
        for bytes in damaged {
            fs::write(&path, &bytes).expect("it is ours");
            let error = read(&dir).expect_err("damaged").to_string();
            assert!(error.contains(path.to_str().expect("plain")), "{error}");
            assert_eq!(fs::read(&path).expect("still there"), bytes);
        }
        fs::remove_file(&path).expect("it is ours");
        fs::create_dir(&path).expect("it is ours");
        read(&dir).expect_err("a folder is no term file");
    }

    #[test]
    fn a_folder_has_one_node_at_a_time_and_the_second_is_told_who() {
        let folder = Folder::new("lock");
        let first = folder.open();
        let error = DataDir::open(&folder.0).expect_err("taken").to_string();
        assert!(error.contains(folder.0.to_str().expect("plain")), "{error}");
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        drop(first);
        folder.open();
    }
}
