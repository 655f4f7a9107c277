//! A client in a program that was built without TLS: who asks for it in the environment is told so. It never
//! speaks in the clear where it was to speak TLS.

use super::options::{Environment, flag};
use crate::error::Error;

/// Any of these means TLS.
const VARIABLES: [&str; 4] = [
    "FAIRLOCK_CA_FILE",
    "FAIRLOCK_CERT_FILE",
    "FAIRLOCK_KEY_FILE",
    "FAIRLOCK_SERVER_NAME",
];

/// Whether the environment leaves this client without TLS.
pub(super) fn check(environment: Environment<'_>) -> Result<(), Error> {
    for name in VARIABLES {
        if environment(name)?.is_some() {
            return Err(absent(name));
        }
    }
    match flag(environment, "FAIRLOCK_TLS")? {
        Some(true) => Err(absent("FAIRLOCK_TLS")),
        Some(false) | None => Ok(()),
    }
}

fn absent(name: &str) -> Error {
    Error::argument(format!(
        "{name} is set, but this program was built without the feature `tls` of the crate fairlock"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_program_without_tls_refuses_to_be_told_of_it_by_the_environment() {
        for name in VARIABLES.into_iter().chain(["FAIRLOCK_TLS"]) {
            let set = |asked: &str| Ok((asked == name).then(|| "true".to_owned()));
            let error = check(&set).expect_err("no TLS is not what was asked for");
            assert_eq!(error.kind(), &ErrorKind::InvalidArgument);
            let text = error.to_string();
            assert!(
                text.contains(&format!("{name} is set, but"))
                    && text.contains("without the feature `tls`"),
                "{text}"
            );
        }
        let off = |asked: &str| Ok((asked == "FAIRLOCK_TLS").then(|| "false".to_owned()));
        assert!(check(&off).is_ok());
        assert!(check(&|_| Ok(None)).is_ok());
        let odd = |asked: &str| Ok((asked == "FAIRLOCK_TLS").then(|| "yes".to_owned()));
        let text = check(&odd).expect_err("neither").to_string();
        assert!(text.contains("FAIRLOCK_TLS"), "{text}");
    }
}
