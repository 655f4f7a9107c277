//! Certificates for tests, made when they run: a folder with one of each kind that a test may want.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that ends with its owner.
pub struct Folder(PathBuf);

impl Folder {
    /// A new one.
    pub fn new() -> Folder {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!("fairlock-tls-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a folder can be made");
        Folder(path)
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// What a certificate is to be.
pub struct Wish {
    /// Hosts and addresses.
    pub names: Vec<String>,
    /// It was good once.
    pub expired: bool,
    /// In which year it ends, if it is still good.
    pub until: i32,
    /// Only for these purposes, if any is named.
    pub purposes: Vec<ExtendedKeyUsagePurpose>,
}

impl Default for Wish {
    fn default() -> Wish {
        Wish {
            names: vec!["localhost".into(), "127.0.0.1".into(), "::1".into()],
            expired: false,
            until: 4096,
            purposes: Vec::new(),
        }
    }
}

impl Authority {
    /// A CA of this name.
    pub fn new(name: &str) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Authority {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// Its own certificate.
    pub fn write(&self, path: &Path) {
        fs::write(path, &self.pem).expect("the folder can be written");
    }

    /// A certificate and its key.
    pub fn issue(&self, wish: Wish, certificate: &Path, key: &Path) {
        let own = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(wish.names).expect("names");
        params.extended_key_usages = wish.purposes;
        if wish.expired {
            params.not_before = date_time_ymd(2000, 1, 1);
            params.not_after = date_time_ymd(2001, 1, 1);
        } else {
            params.not_after = date_time_ymd(wish.until, 1, 1);
        }
        let signed = params.signed_by(&own, &self.issuer).expect("a certificate");
        fs::write(certificate, signed.pem()).expect("the folder can be written");
        fs::write(key, own.serialize_pem()).expect("the folder can be written");
    }
}

/// One of each kind: `ca.pem` has signed `server`, `client`, `expired` and `elsewhere` (for another host), `other-ca.pem` has signed
/// `stranger`; each a `.pem` and a `.key`.
pub fn write_all(file: impl Fn(&str) -> PathBuf) {
    let [ca, other] = [Authority::new("test ca"), Authority::new("other ca")];
    ca.write(&file("ca.pem"));
    other.write(&file("other-ca.pem"));
    let issue = |authority: &Authority, name: &str, wish: Wish| {
        let key = file(&format!("{name}.key"));
        authority.issue(wish, &file(&format!("{name}.pem")), &key);
    };
    issue(&ca, "server", Wish::default());
    issue(
        &ca,
        "client",
        Wish {
            names: vec!["a client".into()],
            purposes: vec![ExtendedKeyUsagePurpose::ClientAuth],
            ..Wish::default()
        },
    );
    issue(
        &ca,
        "expired",
        Wish {
            expired: true,
            ..Wish::default()
        },
    );
    issue(
        &ca,
        "elsewhere",
        Wish {
            names: vec!["db.example".into()],
            ..Wish::default()
        },
    );
    issue(&other, "stranger", Wish::default());
}
