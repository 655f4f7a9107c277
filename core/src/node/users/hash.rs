//! Secrets as the users file keeps them: Argon2 hashes, which cost milliseconds to check, and fast digests with a key of
//! this process, by which a secret is recognised that was right before. Never on the thread of the node: that is for the callers to see to.

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params};
use blake2::Blake2sMac256;
use blake2::digest::{KeyInit, Mac};
use rustix::rand::{GetRandomFlags, getrandom};
use std::fmt;
use std::io;

/// Twice the memory that any recommendation names.
const MOST_MEMORY_KIB: u32 = 256 << 10;
/// Memory times passes: about a second.
const MOST_WORK: u64 = 1 << 20;

/// The hash of a secret.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Hash(PasswordHash);

impl Hash {
    /// Reads what [`hash_secret`] has made, or another tool for Argon2.
    pub(super) fn parse(text: &str) -> Result<Hash, String> {
        let form = "must be an Argon2 hash, as `fairlock hash-secret` prints it";
        let hash = PasswordHash::new(text).map_err(|_| form.to_owned())?;
        Algorithm::try_from(hash.algorithm.as_str()).map_err(|_| form.to_owned())?;
        let params = Params::try_from(&hash).map_err(|_| form.to_owned())?;
        if hash.salt.is_none() || hash.hash.is_none() {
            return Err(form.to_owned());
        }
        let work = u64::from(params.m_cost()) * u64::from(params.t_cost());
        if params.m_cost() > MOST_MEMORY_KIB || work > MOST_WORK {
            return Err(format!(
                "takes too much to check: at most {MOST_MEMORY_KIB} KiB of memory (m), and m times the passes (t) at most {MOST_WORK}"
            ));
        }
        Ok(Hash(hash))
    }

    /// Whether this is the hash of `secret`. Takes milliseconds.
    pub(super) fn is_of(&self, secret: &[u8]) -> bool {
        Argon2::default().verify_password(secret, &self.0).is_ok()
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hash(…)")
    }
}

/// The hash of a secret, for `secret_hash` in a users file: Argon2id with a new salt, as text.
///
/// # Errors
/// The system has no random numbers.
pub fn hash_secret(secret: &[u8]) -> io::Result<String> {
    let salt: [u8; 16] = random()?;
    let hash = Argon2::default().hash_password_with_salt(secret, &salt);
    hash.map(|hash| hash.to_string())
        .map_err(|error| io::Error::other(error.to_string()))
}

/// What was said, in a form that says nothing to who does not know the key.
pub(super) type Digest = [u8; 32];

/// Makes digests with a key that is made with it.
pub(super) struct Digests {
    key: [u8; 32],
}

impl Digests {
    pub(super) fn new() -> io::Result<Digests> {
        Ok(Digests { key: random()? })
    }

    /// The digest of these parts one after the other.
    pub(super) fn of(&self, parts: &[&[u8]]) -> Digest {
        let mut mac = Blake2sMac256::new_from_slice(&self.key).expect("a key may have 32 bytes");
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().into()
    }
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let count = getrandom(&mut bytes, GetRandomFlags::empty())?;
    if count < N {
        return Err(io::Error::other("the system has no random numbers"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_of_its_secret_and_of_no_other() {
        let text = hash_secret(b"sesame").expect("random numbers");
        assert!(text.starts_with("$argon2id$v=19$m="), "{text}");
        assert_ne!(
            text,
            hash_secret(b"sesame").expect("random numbers"),
            "a salt each"
        );
        let hash = Hash::parse(&text).expect("it was made so");
        assert!(hash.is_of(b"sesame"));
        assert!(!hash.is_of(b"sesamE") && !hash.is_of(b""));
        assert_eq!(format!("{hash:?}"), "Hash(…)");
    }

    #[test]
    fn what_is_no_hash_or_costs_too_much_is_refused() {
        let tail = "$c2FsdHNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
        let parse = |head: &str| Hash::parse(&format!("{head}{tail}"));
        parse("$argon2id$v=19$m=65536,t=3,p=4").expect("a usual one");
        for head in [
            "",
            "plain",
            "$scrypt$ln=16,r=8,p=1",
            "$argon2id$v=19$m=1,t=1,p=1",
            "$argon2id$v=19$m=300000,t=1,p=1",
            "$argon2id$v=19$m=262144,t=5,p=1",
        ] {
            let problem = parse(head).expect_err(head);
            assert!(problem.contains("must be") || problem.contains("too much"));
        }
        assert!(Hash::parse("$argon2id$v=19$m=65536,t=3,p=4$c2FsdHNhbHQ").is_err());
    }

    #[test]
    fn digests_depend_on_the_key_and_on_every_byte() {
        let digests = Digests::new().expect("random numbers");
        let digest = digests.of(&[b"a", b":", b"x"]);
        assert_eq!(digest, digests.of(&[b"a:x"]));
        assert_ne!(digest, digests.of(&[b"a:y"]));
        assert_ne!(
            digest,
            Digests::new().expect("random numbers").of(&[b"a:x"])
        );
    }
}
